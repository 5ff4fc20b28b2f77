use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::launch::{DATA, Ready};
use super::{SharedZooKeeper, ZooKeeperOptions, ZooKeeperServer};
use crate::network::Host;
use crate::servers::account::LOG;
use crate::servers::cluster::wait;
use crate::servers::host::address;
use crate::servers::nodes::at_once;
use crate::servers::port::free_port;
use crate::servers::server_process::{START_TIMEOUT, started};

/// Several ZooKeeper servers that elect a leader.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    servers: Vec<ZooKeeperServer>,
}

impl ZooKeeperEnsemble {
    /// Starts so many, all with the same options, and waits until each serves: 1.5 to 3 s for three.
    ///
    /// A follower leaves a leader that is silent for 3 s; of one that is killed it knows at once.
    ///
    /// # Panics
    ///
    /// As [`ZooKeeperServer::start`].
    #[must_use]
    pub fn start(size: usize, options: &ZooKeeperOptions) -> Self {
        let members = vec![None; size];
        Self::start_members(&members, options)
    }

    /// Starts one server on each of these hosts, all with the same options, and waits until each
    /// serves.
    ///
    /// # Panics
    ///
    /// As [`ZooKeeperServer::start`].
    ///
    /// # Examples
    ///
    /// A leader that believes in its followers, while they have already left it and elect another:
    ///
    /// ```no_run
    /// use lock_testkit::network::Network;
    /// use lock_testkit::servers::{ZooKeeperEnsemble, ZooKeeperOptions};
    ///
    /// let network = Network::new()?;
    /// let hosts = ["a", "b", "c"].map(|name| network.host(name));
    /// let ensemble = ZooKeeperEnsemble::start_on(&hosts.each_ref(), &ZooKeeperOptions::new());
    ///
    /// let leader = ensemble.leader();
    /// for follower in (0..3).filter(|place| *place != leader) {
    ///     network.reset(&hosts[follower], &hosts[leader]);
    /// }
    /// // Clients, such as this process, still reach all of them.
    /// let another = ensemble.leader_besides(leader);
    /// assert_ne!(another, leader);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn start_on(hosts: &[&Host], options: &ZooKeeperOptions) -> Self {
        let members: Vec<_> = hosts.iter().copied().map(Some).collect();
        Self::start_members(&members, options)
    }

    fn start_members(hosts: &[Option<&Host>], options: &ZooKeeperOptions) -> Self {
        started("ZooKeeper", || Self::try_start(hosts, options))
    }

    /// The one ensemble of three that all tests of a run use, started by the first that asks.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn shared() -> SharedZooKeeper {
        SharedZooKeeper::join("ensemble", || {
            Self::start(3, &ZooKeeperOptions::new()).servers
        })
    }

    /// The servers, of which any may be the leader.
    #[must_use]
    pub fn servers(&self) -> &[ZooKeeperServer] {
        &self.servers
    }

    /// The place of the leader.
    ///
    /// # Panics
    ///
    /// If there is none for 10 s.
    #[must_use]
    pub fn leader(&self) -> usize {
        self.leader_among(|_| true)
    }

    /// The place of the leader that others elect while this one takes itself for the leader.
    ///
    /// # Panics
    ///
    /// If there is none for 10 s.
    #[must_use]
    pub fn leader_besides(&self, old: usize) -> usize {
        self.leader_among(|place| place != old)
    }

    fn leader_among(&self, asked: impl Fn(usize) -> bool) -> usize {
        let leads = |place: usize| self.servers[place].mode().as_deref() == Some("leader");
        let mut found = None;
        wait("a server leads", || {
            found = (0..self.servers.len()).find(|place| asked(*place) && leads(*place));
            found.is_some()
        });
        found.expect("BUG: it has been found")
    }

    /// Waits until every server that answers serves, as the leader or behind it.
    ///
    /// # Panics
    ///
    /// If that takes more than 60 s.
    pub fn settle(&self) {
        assert!(self.settles(), "the servers do not find a leader");
    }

    /// `127.0.0.1:PORT` of each.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address()).collect()
    }

    /// `zk://127.0.0.1:PORT,127.0.0.1:PORT,...`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zk://{}", self.addresses().join(","))
    }

    pub(super) fn of(servers: Vec<ZooKeeperServer>) -> Self {
        Self { servers }
    }

    pub(super) fn into_servers(self) -> Vec<ZooKeeperServer> {
        self.servers
    }

    fn try_start(hosts: &[Option<&Host>], options: &ZooKeeperOptions) -> io::Result<Self> {
        let mut members = Vec::new();
        let mut options = options
            .clone()
            .with_default("initLimit", "20")
            .with_default("syncLimit", "6");
        for (place, host) in hosts.iter().enumerate() {
            members.push((free_port()?, *host));
            let (quorum, election) = (free_port()?, free_port()?);
            let peer = format!("{}:{quorum}:{election}", address(*host));
            options = options.with_default(&format!("server.{}", place + 1), &peer);
        }
        let servers = at_once(members.into_iter().enumerate(), |(place, (port, host))| {
            let id = (place + 1).to_string();
            let mut options = options.clone().with_file(&format!("{DATA}/myid"), &id);
            if let Some(host) = host {
                options = options.with_host(host);
            }
            options.ready = Ready::Runs;
            ZooKeeperServer::start_at(port, options.with_free_ports()?)
        });
        let servers = servers.into_iter().collect::<io::Result<Vec<_>>>()?;
        let ensemble = Self { servers };
        if ensemble.settles() {
            return Ok(ensemble);
        }
        Err(ensemble.reason())
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
            thread::sleep(PAUSE);
        }
        false
    }

    /// The ports between servers are taken later than those for clients.
    fn reason(&self) -> io::Error {
        let log = |server: &ZooKeeperServer| fs::read_to_string(server.dir().join(LOG));
        let logs: Vec<_> = self.servers.iter().flat_map(log).collect();
        let logs = logs.concat();
        let kind = if logs.contains("Address already in use") {
            io::ErrorKind::AddrInUse
        } else {
            io::ErrorKind::Other
        };
        io::Error::new(kind, logs)
    }
}

const PAUSE: Duration = Duration::from_millis(5);
