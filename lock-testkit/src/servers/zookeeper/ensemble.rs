use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::launch::{DATA, Ready};
use super::{SharedZooKeeper, ZooKeeperOptions, ZooKeeperServer};
use crate::network::NetworkHost;
use crate::proxy::Proxy;
use crate::servers::port::free_port;
use crate::servers::process::LOG;
use crate::servers::server_process::{START_TIMEOUT, address, at_once, failed_with, started};
use crate::wait;

/// Several ZooKeeper servers that elect a leader.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    servers: Vec<ZooKeeperServer>,
}

impl ZooKeeperEnsemble {
    /// Starts so many, all with the same options, and waits until each serves: 1.5 to 3 s for three.
    ///
    /// A follower leaves a leader that is silent for 3 s; of one that is killed it knows at once.
    #[must_use]
    pub fn start(size: usize, options: &ZooKeeperOptions) -> Self {
        let hosts = vec![None; size];
        started("ZooKeeper", || Self::try_start(&hosts, options))
    }

    /// Starts one server on each of these hosts, all with the same options, and waits until each
    /// serves.
    #[must_use]
    pub fn start_on(hosts: &[&NetworkHost], options: &ZooKeeperOptions) -> Self {
        let hosts: Vec<_> = hosts.iter().copied().map(Some).collect();
        started("ZooKeeper", || Self::try_start(&hosts, options))
    }

    /// Starts three. The last one leads, and the first follows it through a proxy. When the proxy holds
    /// bytes back, the first is cut off from its leader only.
    pub fn start_with_far_follower(options: &ZooKeeperOptions) -> (Self, Proxy) {
        started("ZooKeeper", || Self::try_start_far(options, 1))
    }

    /// Starts three. The last one leads, and both others follow it through a proxy. After
    /// [`half_open`](Proxy::half_open) and [`refuse`](Proxy::refuse) they elect another leader, which
    /// the former leader does not notice for `syncLimit` ticks.
    pub fn start_with_far_leader(options: &ZooKeeperOptions) -> (Self, Proxy) {
        started("ZooKeeper", || Self::try_start_far(options, 2))
    }

    /// The one ensemble of three that all tests of a run use, started by the first that asks.
    pub fn shared() -> SharedZooKeeper {
        SharedZooKeeper::join("ensemble", || {
            Self::start(3, &ZooKeeperOptions::new()).servers
        })
    }

    /// The servers, of which any may be the leader.
    pub fn servers(&self) -> &[ZooKeeperServer] {
        &self.servers
    }

    /// The place of the leader, within 10 s.
    pub fn leader(&self) -> usize {
        let leads = |place: &usize| self.servers[*place].mode().as_deref() == Some("leader");
        let mut found = None;
        wait("a server leads", || {
            found = (0..self.servers.len()).find(leads);
            found.is_some()
        });
        found.expect("BUG: it has been found")
    }

    /// Waits until every server that answers serves, as the leader or behind it.
    pub fn settle(&self) {
        assert!(self.settles(), "the servers do not find a leader");
    }

    /// `127.0.0.1:PORT` of each.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address()).collect()
    }

    /// `zk://127.0.0.1:PORT,127.0.0.1:PORT,...`.
    pub fn url(&self) -> String {
        format!("zk://{}", self.addresses().join(","))
    }

    fn try_start(hosts: &[Option<&NetworkHost>], options: &ZooKeeperOptions) -> io::Result<Self> {
        let options = options.clone().with_default("syncLimit", "6");
        let (options, _peers) = members(hosts, options)?;
        let servers = at_once(hosts.iter().enumerate(), |(place, host)| {
            start_member(place, *host, options.clone())
        });
        let servers = servers.into_iter().collect::<io::Result<Vec<_>>>()?;
        let ensemble = Self { servers };
        if ensemble.settles() {
            return Ok(ensemble);
        }
        Err(ensemble.reason())
    }

    /// The first `far` servers reach the last one through the proxy.
    fn try_start_far(options: &ZooKeeperOptions, far: usize) -> io::Result<(Self, Proxy)> {
        let (options, peers) = members(&[None; 3], options.clone())?;
        let (quorum, election) = peers[2];
        let proxy = Proxy::of_bytes(quorum);
        let leader = format!("127.0.0.1:{}:{election}", proxy.port());
        let start = |place: usize| {
            let options = match place < far {
                true => options.clone().with_config("server.3", &leader),
                false => options.clone(),
            };
            start_member(place, None, options)
        };
        // Of two members without data the larger id leads, and keeps leading when a third joins.
        let servers = vec![start(2)?, start(1)?];
        let mut ensemble = Self { servers };
        ensemble.settle();
        ensemble.servers.push(start(0)?);
        ensemble.servers.reverse();
        ensemble.settle();
        assert_eq!(ensemble.leader(), 2, "the others elected another one");
        Ok((ensemble, proxy))
    }

    fn settles(&self) -> bool {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            let modes: Vec<_> = self
                .servers
                .iter()
                .filter(|server| server.try_four_letter("ruok").is_ok())
                .map(ZooKeeperServer::mode)
                .collect();
            let leads = |mode: &Option<String>| mode.as_deref() == Some("leader");
            if modes.iter().all(Option::is_some) && modes.iter().any(leads) {
                return true;
            }
            thread::sleep(POLL_INTERVAL);
        }
        false
    }

    /// The ports between servers are taken later than those for clients.
    fn reason(&self) -> io::Error {
        let log = |server: &ZooKeeperServer| fs::read_to_string(server.dir().join(LOG));
        let logs: Vec<_> = self.servers.iter().flat_map(log).collect();
        failed_with(logs.concat())
    }
}

/// The options that all members have, with the ports between them: of each that for its followers and
/// that for elections.
fn members(
    hosts: &[Option<&NetworkHost>],
    options: ZooKeeperOptions,
) -> io::Result<(ZooKeeperOptions, Vec<(u16, u16)>)> {
    let mut options = options.with_default("initLimit", "20");
    let mut peers = Vec::new();
    for (place, host) in hosts.iter().enumerate() {
        let (quorum, election) = (free_port()?, free_port()?);
        peers.push((quorum, election));
        let peer = format!("{}:{quorum}:{election}", address(*host));
        options = options.with_default(&format!("server.{}", place + 1), &peer);
    }
    Ok((options, peers))
}

fn start_member(
    place: usize,
    host: Option<&NetworkHost>,
    options: ZooKeeperOptions,
) -> io::Result<ZooKeeperServer> {
    let options = options.with_file(&format!("{DATA}/myid"), &(place + 1).to_string());
    let mut options = options.with_host(host);
    options.ready = Ready::Runs;
    ZooKeeperServer::start_at(free_port()?, options.with_free_ports()?)
}

const POLL_INTERVAL: Duration = Duration::from_millis(5);
