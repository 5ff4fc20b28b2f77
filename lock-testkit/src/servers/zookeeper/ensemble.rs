use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::launch::{DATA, LOG, PATIENCE, Ports, Ready};
use super::{SharedZooKeeper, ZooKeeperOptions, ZooKeeperServer};
use crate::servers::nodes::at_once;
use crate::servers::port::free_port;

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
        loop {
            match Self::try_start(size, options) {
                Ok(ensemble) => return ensemble,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("ZooKeeper does not start: {error}"),
            }
        }
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
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let leads = |server: &ZooKeeperServer| server.mode().as_deref() == Some("leader");
            if let Some(leader) = self.servers.iter().position(leads) {
                return leader;
            }
            assert!(Instant::now() < deadline, "nobody leads");
            thread::sleep(PAUSE);
        }
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
        self.servers.iter().map(ZooKeeperServer::address).collect()
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

    fn try_start(size: usize, options: &ZooKeeperOptions) -> io::Result<Self> {
        let mut members = Vec::new();
        let mut options = options
            .clone()
            .with_default("initLimit", "20")
            .with_default("syncLimit", "6");
        for id in 1..=size {
            members.push(Ports::free(&options)?);
            let (quorum, election) = (free_port()?, free_port()?);
            let peer = format!("127.0.0.1:{quorum}:{election}");
            options = options.with_default(&format!("server.{id}"), &peer);
        }
        let servers = at_once(members.into_iter().enumerate(), |(place, ports)| {
            let id = (place + 1).to_string();
            let options = options.clone().with_file(&format!("{DATA}/myid"), &id);
            ZooKeeperServer::start_at(ports, options, Ready::Runs)
        });
        let servers = servers.into_iter().collect::<io::Result<Vec<_>>>()?;
        let ensemble = Self { servers };
        if ensemble.settles() {
            return Ok(ensemble);
        }
        Err(ensemble.reason())
    }

    fn settles(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
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
