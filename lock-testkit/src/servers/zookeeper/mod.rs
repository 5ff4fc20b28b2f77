//! ZooKeeper: one server or an ensemble, of a test or of a test run.

mod ensemble;
mod launch;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use self::launch::{Ready, is_own, serves};
use super::port::free_port;
use super::server_process::{Setup, address, deref_to, near, setup_options, started};
use super::shared::join;
use super::{ClientCertificate, ServerProcess, TestCertificates};
use crate::network::NetworkHost;

pub use self::ensemble::ZooKeeperEnsemble;

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
    fn start_at(port: u16, options: ZooKeeperOptions) -> io::Result<Self> {
        Ok(Self {
            secure_port: options.secure_port,
            process: ServerProcess::start_at(port, options.setup.clone(), options)?,
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
        ask(self.host(), self.port(), word, Duration::from_secs(5))
    }

    /// One value of `mntr`, such as `zk_watch_count`; none if it has no such number.
    ///
    /// Every four-letter word, this one too, adds to `zk_packets_received`.
    pub fn mntr(&self, name: &str) -> Option<i64> {
        let mntr = self.four_letter("mntr");
        mntr.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'))
            .and_then(|value| value.trim().parse().ok())
    }

    /// `standalone`, `leader` or `follower`; none while it does not serve.
    pub fn mode(&self) -> Option<String> {
        mode(&self.try_four_letter("srvr").ok()?)
    }
}

deref_to!(ZooKeeperServer, process: ServerProcess);

/// How a [`ZooKeeperServer`] is set up. By default a tick is 0.5 s, sessions
/// last 0.5 to 10 s, four-letter words are open to everybody, and what is written survives a
/// [`restart`](crate::servers::ServerProcess::restart) but not a power failure.
///
/// `{dir}` in a value or in a file stands for the directory of the server.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperOptions {
    properties: Vec<(String, String)>,
    files: Vec<(String, String)>,
    tls: Option<TestCertificates>,
    setup: Setup,
    /// The port that takes TLS, with files of which it is opened.
    secure_port: Option<u16>,
    ready: Ready,
}

setup_options!(ZooKeeperOptions);

impl ZooKeeperOptions {
    /// Sets a property of the Java machine, such as `zookeeper.globalOutstandingLimit`.
    #[must_use]
    pub fn with_property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts a file into its directory before it starts for the first time.
    #[must_use]
    pub fn with_file(mut self, name: &str, content: &str) -> Self {
        self.files.push((name.to_owned(), content.to_owned()));
        self
    }

    /// Opens a [second port](ZooKeeperServer::secure_port) that takes TLS only.
    #[must_use]
    pub fn with_tls(mut self, files: &TestCertificates, clients: ClientCertificate) -> Self {
        let auth = match clients {
            ClientCertificate::Ignored => "none",
            ClientCertificate::Required => "need",
        };
        // One file has to hold both.
        let read = |path| fs::read_to_string(path).expect("the files are there");
        let pair = read(files.server_key()) + &read(files.server_certificate());
        self.tls = Some(files.clone());
        let factory = "org.apache.zookeeper.server.NettyServerCnxnFactory";
        self.with_file("server.pem", &pair)
            .with_config("serverCnxnFactory", factory)
            .with_config("ssl.keyStore.location", "{dir}/server.pem")
            .with_config("ssl.keyStore.type", "PEM")
            .with_config("ssl.trustStore.location", &files.ca().to_string_lossy())
            .with_config("ssl.trustStore.type", "PEM")
            .with_config("ssl.clientAuth", auth)
    }

    /// Adds a line that those of the user replace.
    fn with_default(mut self, name: &str, value: &str) -> Self {
        self.setup
            .config
            .insert(0, (name.to_owned(), value.to_owned()));
        self
    }

    /// With a port of its own for TLS, if it takes TLS.
    fn with_free_ports(mut self) -> io::Result<Self> {
        self.secure_port = self.tls.is_some().then(free_port).transpose()?;
        Ok(self)
    }
}

/// A server or an ensemble that all tests of a run share, also across processes. Tests must not stop
/// it; it ends within a second after the run.
///
/// A run is that of `cargo nextest`, and else the process.
#[derive(Clone, Debug)]
pub struct SharedZooKeeper {
    ports: Vec<u16>,
}

impl SharedZooKeeper {
    /// `127.0.0.1:PORT`, with a comma between several.
    pub fn address(&self) -> String {
        self.addresses().join(",")
    }

    /// `127.0.0.1:PORT` of each server.
    pub fn addresses(&self) -> Vec<String> {
        let address = |port| format!("127.0.0.1:{port}");
        self.ports.iter().map(address).collect()
    }

    /// `zk://127.0.0.1:PORT`, with a comma between several.
    pub fn url(&self) -> String {
        format!("zk://{}", self.address())
    }

    /// Finds the one of this run, or starts it.
    fn join(name: &str, start: impl Fn() -> Vec<ZooKeeperServer>) -> Self {
        let processes = || {
            let servers = start().into_iter();
            servers.map(|server| server.process).collect()
        };
        let places = join(name, processes, |place| {
            is_own(&place.dir, None, place.port) && serves(None, place.port)
        });
        let ports = places.into_iter().map(|place| place.port).collect();
        Self { ports }
    }
}

/// Asks the server of this port with one of the four-letter words, on a connection of its own, with so
/// much time for connecting and so much for each part of the answer.
fn ask(host: Option<&NetworkHost>, port: u16, word: &str, limit: Duration) -> io::Result<String> {
    let address = SocketAddr::from((address(host), port));
    // A host reaches itself through every fault.
    let mut stream = near(host, || TcpStream::connect_timeout(&address, limit))?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The part of the server, as `srvr` tells it: `standalone`, `leader` or `follower`; none while it
/// does not serve.
fn mode(srvr: &str) -> Option<String> {
    let mode = srvr.lines().find_map(|line| line.strip_prefix("Mode: "));
    mode.map(str::to_owned)
}
