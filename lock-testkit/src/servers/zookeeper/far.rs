use std::io;

use super::launch::{DATA, Ready};
use super::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};
use crate::proxy::Proxy;
use crate::servers::port::free_port;
use crate::servers::server_process::started;

impl ZooKeeperEnsemble {
    /// Starts three of which the last leads, and the first follows it through a proxy: held back, the
    /// proxy cuts that one off from its leader and from nobody else.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with_far_follower(options: &ZooKeeperOptions) -> (Self, Proxy) {
        start(options, 1)
    }

    /// Starts three of which the last leads, and both others follow it through a proxy: with
    /// [`half_open`](Proxy::half_open) and [`refuse`](Proxy::refuse) they elect another leader, and
    /// the former one does not notice for `syncLimit` ticks.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with_far_leader(options: &ZooKeeperOptions) -> (Self, Proxy) {
        start(options, 2)
    }
}

fn start(options: &ZooKeeperOptions, far: usize) -> (ZooKeeperEnsemble, Proxy) {
    started("ZooKeeper", || try_start(options, far))
}

/// The first `far` servers reach the last one through the proxy.
fn try_start(options: &ZooKeeperOptions, far: usize) -> io::Result<(ZooKeeperEnsemble, Proxy)> {
    let mut options = options.clone().with_default("initLimit", "20");
    let (mut members, mut peers) = (Vec::new(), Vec::new());
    for id in 1..=3 {
        members.push(free_port()?);
        let (quorum, election) = (free_port()?, free_port()?);
        peers.push((quorum, election));
        let peer = format!("127.0.0.1:{quorum}:{election}");
        options = options.with_default(&format!("server.{id}"), &peer);
    }
    let proxy = Proxy::of_bytes(peers[2].0);
    let leader = format!("127.0.0.1:{}:{}", proxy.port(), peers[2].1);
    let start = |id: usize| {
        let options = match id <= far {
            true => options.clone().with_config("server.3", &leader),
            false => options.clone(),
        };
        let mut options = options.with_file(&format!("{DATA}/myid"), &id.to_string());
        options.ready = Ready::Runs;
        ZooKeeperServer::start_at(members[id - 1], options.with_free_ports()?)
    };
    // Of two without data the one with the larger number leads, and goes on to when a third comes.
    let near = ZooKeeperEnsemble::of(vec![start(3)?, start(2)?]);
    near.settle();
    let mut servers = near.into_servers();
    servers.push(start(1)?);
    servers.reverse();
    let ensemble = ZooKeeperEnsemble::of(servers);
    ensemble.settle();
    assert_eq!(ensemble.leader(), 2, "the others elected another one");
    Ok((ensemble, proxy))
}
