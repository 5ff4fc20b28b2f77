use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::port::free_port;
use super::server_process::{
    START_TIMEOUT, ServerProcess, Service, Setup, Site, address, deref_to, setup_options, started,
};
use super::shared::{SharedServer, join};
use crate::network::NetworkHost;

/// One `etcd`, killed when the value is dropped.
#[derive(Debug)]
pub struct EtcdServer(ServerProcess);

/// How an [`EtcdServer`] is set up; the names of its configuration are flags without their dashes.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    setup: Setup,
    /// Where the servers of a cluster find each other; none of a server that is alone.
    peers: Vec<(Ipv4Addr, u16)>,
    peer: u16,
    is_tls: bool,
}

setup_options!(EtcdOptions);

impl EtcdOptions {
    /// Takes TLS only, which its flags set up.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.is_tls = true;
        self
    }
}

impl EtcdServer {
    /// Starts one and waits until it serves.
    #[must_use]
    pub fn start(options: EtcdOptions) -> Self {
        started("etcd", move || {
            let options = EtcdOptions {
                peer: free_port()?,
                ..options.clone()
            };
            ServerProcess::start_at(free_port()?, options.setup.clone(), options).map(Self)
        })
    }

    /// The port of a server that the tests of a run have in common.
    #[must_use]
    pub fn shared() -> Vec<u16> {
        let start = || vec![Self::start(quick()).0];
        ports(join("etcd", start, serves))
    }

    /// The ports of a cluster of three that the tests of a run have in common.
    #[must_use]
    pub fn shared_cluster() -> Vec<u16> {
        let start = || {
            let servers = Self::cluster(&quick()).into_iter();
            servers.map(|server| server.0).collect()
        };
        ports(join("etcd-cluster", start, serves))
    }

    /// Starts a cluster of three.
    #[must_use]
    pub fn cluster(options: &EtcdOptions) -> Vec<Self> {
        Self::cluster_on(&[None, None, None], options)
    }

    /// Starts a cluster on hosts.
    #[must_use]
    pub fn cluster_on(hosts: &[Option<NetworkHost>; 3], options: &EtcdOptions) -> Vec<Self> {
        started("etcd", || {
            let peers = hosts
                .iter()
                .map(|host| Ok((address(host.as_ref()), free_port()?)));
            let peers = peers.collect::<io::Result<Vec<_>>>()?;
            let starts = peers.iter().zip(hosts).map(|((_, peer), host)| {
                let mut options = EtcdOptions {
                    peers: peers.clone(),
                    peer: *peer,
                    ..options.clone()
                };
                options.setup.host = host.clone();
                ServerProcess::start_at(free_port()?, options.setup.clone(), options).map(Self)
            });
            let servers = starts.collect::<io::Result<Vec<_>>>()?;
            let deadline = Instant::now() + START_TIMEOUT;
            for server in &servers {
                let address = server.address().parse().expect("it is an address");
                while !is_healthy(address) {
                    assert!(Instant::now() < deadline, "the cluster has no leader");
                    std::thread::sleep(POLL_INTERVAL);
                }
            }
            Ok(servers)
        })
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn ports(places: Vec<SharedServer>) -> Vec<u16> {
    places.into_iter().map(|place| place.port).collect()
}

fn serves(place: &SharedServer) -> bool {
    is_healthy(SocketAddr::from(([127, 0, 0, 1], place.port)))
}

/// An election after 500 ms, so that the shortest lease is one of 1 s.
fn quick() -> EtcdOptions {
    EtcdOptions::new()
        .with_config("heartbeat-interval", "50")
        .with_config("election-timeout", "500")
}

deref_to!(EtcdServer, 0: ServerProcess);

impl Service for EtcdOptions {
    fn configure(&self, _: &Site<'_>) -> io::Result<()> {
        Ok(())
    }

    fn command(&self, site: &Site<'_>) -> io::Result<Vec<OsString>> {
        let address = self.setup.address();
        let scheme = if self.is_tls { "https" } else { "http" };
        let client = format!("{scheme}://{address}:{}", site.port);
        let own = [(address, self.peer)];
        let peers = match &self.peers[..] {
            [] => &own[..],
            peers => peers,
        };
        let named = peers
            .iter()
            .map(|(address, port)| format!("{port}=http://{address}:{port}"));
        let all = named.collect::<Vec<_>>().join(",");
        let peer = format!("http://{address}:{}", self.peer);
        let flags = [
            ("name", self.peer.to_string()),
            ("data-dir", site.dir.join("data").display().to_string()),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", peer.clone()),
            ("initial-advertise-peer-urls", peer),
            ("initial-cluster", all),
            ("logger", "zap".to_owned()),
            ("log-outputs", "stderr".to_owned()),
        ];
        let own = self.setup.config.iter().cloned();
        let flags = flags
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .chain(own);
        let words = flags.map(|(name, value)| format!("--{name}={value}").into());
        Ok(std::iter::once("etcd".into()).chain(words).collect())
    }

    /// By the log with TLS, because the server refuses unknown clients, and in a cluster, because a member
    /// without the others does not answer.
    fn is_ready(&self, site: &Site<'_>) -> bool {
        match (self.is_tls, &self.peers[..]) {
            (true, _) => site.log().contains("serving client traffic securely"),
            (false, []) => is_healthy((self.setup.address(), site.port).into()),
            (false, _) => site.log().contains("serving peer traffic"),
        }
    }
}

/// Whether a server has a leader.
fn is_healthy(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        io::Result::Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"health\":\"true\""))
}
