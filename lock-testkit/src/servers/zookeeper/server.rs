use std::io;
use std::ops::Deref;

use super::words::{Door, four_letter, mode, value};
use super::{SharedZooKeeper, ZooKeeperOptions};
use crate::servers::ServerProcess;
use crate::servers::port::free_port;
use crate::servers::server_process::started;
use crate::servers::shared::Member;

/// One ZooKeeper server, killed when the value is dropped.
#[derive(Debug)]
pub struct ZooKeeperServer {
    process: ServerProcess,
    secure_port: Option<u16>,
}

impl ZooKeeperServer {
    /// Starts one and waits until it serves: 0.8 s on an idle machine.
    #[must_use]
    pub fn start(options: ZooKeeperOptions) -> Self {
        started("ZooKeeper", move || {
            Self::start_at(free_port()?, options.clone().with_free_ports()?)
        })
    }

    /// Starts one at this port; fails if another program has bound it in the meantime.
    pub(super) fn start_at(port: u16, options: ZooKeeperOptions) -> io::Result<Self> {
        Ok(Self {
            secure_port: options.secure_port,
            process: ServerProcess::start_at(port, options)?,
        })
    }

    /// Its port of 127.0.0.1, or of its host, for TLS.
    pub fn secure_port(&self) -> u16 {
        self.secure_port.expect("started with TLS")
    }

    /// `zk://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("zk://{}", self.address())
    }

    /// The one server that all tests of a run use, started by the first that asks.
    pub fn shared() -> SharedZooKeeper {
        SharedZooKeeper::join("server", || vec![Self::start(ZooKeeperOptions::new())])
    }

    /// Asks with one of the four-letter words, on a connection of its own.
    pub fn four_letter(&self, word: &str) -> String {
        self.try_four_letter(word).expect("the server answers")
    }

    /// The same of a server that may be stopped or killed.
    ///
    /// # Errors
    ///
    /// If it does not answer within 5 s.
    pub fn try_four_letter(&self, word: &str) -> io::Result<String> {
        let (host, port) = (self.host(), self.port());
        four_letter(Door { host, port }, word)
    }

    /// One value of `mntr`, such as `zk_watch_count`; none if it has no such number.
    ///
    /// Every four-letter word, this one too, adds to `zk_packets_received`.
    pub fn mntr(&self, name: &str) -> Option<i64> {
        value(&self.four_letter("mntr"), name)
    }

    /// `standalone`, `leader` or `follower`; none while it does not serve.
    pub fn mode(&self) -> Option<String> {
        mode(&self.try_four_letter("srvr").ok()?)
    }

    /// Hands it over to a test run.
    pub(super) fn into_member(self) -> Member {
        self.process.into_member()
    }
}

impl Deref for ZooKeeperServer {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}
