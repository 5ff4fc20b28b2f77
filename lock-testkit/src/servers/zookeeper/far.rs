use std::io;

use super::launch::{DATA, Ports, Ready};
use super::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};
use crate::proxy::Proxy;
use crate::servers::port::free_port;

impl ZooKeeperEnsemble {
    /// Starts three of which the last leads, and the first follows it through a proxy: held back, the
    /// proxy cuts that one off from its leader and from nobody else.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with_far_follower(options: &ZooKeeperOptions) -> (Self, Proxy) {
        loop {
            match try_start(options) {
                Ok(started) => return started,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("ZooKeeper does not start: {error}"),
            }
        }
    }
}

fn try_start(options: &ZooKeeperOptions) -> io::Result<(ZooKeeperEnsemble, Proxy)> {
    let mut options = options.clone().with_default("initLimit", "20");
    let (mut members, mut quorum_ports) = (Vec::new(), Vec::new());
    let mut far = Vec::new();
    for id in 1..=3 {
        members.push(Ports::free(&options)?);
        let (quorum, election) = (free_port()?, free_port()?);
        quorum_ports.push(quorum);
        far.push(election);
        let peer = format!("127.0.0.1:{quorum}:{election}");
        options = options.with_default(&format!("server.{id}"), &peer);
    }
    let proxy = Proxy::of_bytes(quorum_ports[2]);
    let leader = format!("127.0.0.1:{}:{}", proxy.port(), far[2]);
    let start = |id: usize, options: &ZooKeeperOptions| {
        let options = options
            .clone()
            .with_file(&format!("{DATA}/myid"), &id.to_string());
        ZooKeeperServer::start_at(members[id - 1], options, Ready::Runs)
    };
    // Of two without data the one with the larger number leads, and goes on to when a third comes.
    let near = ZooKeeperEnsemble::of(vec![start(3, &options)?, start(2, &options)?]);
    near.settle();
    let mut servers = near.into_servers();
    servers.push(start(1, &options.with_config("server.3", &leader))?);
    servers.reverse();
    let ensemble = ZooKeeperEnsemble::of(servers);
    ensemble.settle();
    assert_eq!(ensemble.leader(), 2, "the others elected another one");
    Ok((ensemble, proxy))
}
