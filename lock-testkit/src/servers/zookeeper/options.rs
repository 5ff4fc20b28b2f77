use std::fs;
use std::io;

use super::launch::Ready;
use crate::servers::port::free_port;
use crate::servers::server_process::{Setup, setup_options};
use crate::servers::{ClientCertificate, TestCertificates};

/// How a [`ZooKeeperServer`](super::ZooKeeperServer) is set up. By default a tick is 0.5 s, sessions
/// last 0.5 to 10 s, four-letter words are open to everybody, and what is written survives a
/// [`restart`](crate::servers::ServerProcess::restart) but not a power failure.
///
/// `{dir}` in a value or in a file stands for the directory of the server.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperOptions {
    pub(super) properties: Vec<(String, String)>,
    pub(super) files: Vec<(String, String)>,
    tls: Option<TestCertificates>,
    pub(super) setup: Setup,
    /// The port that takes TLS, with files of which it is opened.
    pub(super) secure_port: Option<u16>,
    pub(super) ready: Ready,
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

    /// Opens a [second port](super::ZooKeeperServer::secure_port) that takes TLS only.
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
    pub(super) fn with_default(mut self, name: &str, value: &str) -> Self {
        self.setup
            .config
            .insert(0, (name.to_owned(), value.to_owned()));
        self
    }

    /// With a port of its own for TLS, if it takes TLS.
    pub(super) fn with_free_ports(mut self) -> io::Result<Self> {
        self.secure_port = self.tls.is_some().then(free_port).transpose()?;
        Ok(self)
    }
}
