use std::io;

use super::launch::{DATA, Ports, Ready};
use super::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};
use crate::proxy::Proxy;
use crate::servers::port::free_port;

/// The links between a leader and its followers.
#[derive(Debug)]
pub struct LeaderLinks {
    /// From the followers to the leader.
    to_leader: Proxy,
    /// From the leader to the ports of the others, which it connects to once it leads no more.
    to_others: Vec<Proxy>,
}

impl LeaderLinks {
    /// Cuts the leader off. The followers notice at once and elect another leader; the connections of
    /// the former one stay open and silent, so that it goes on for `syncLimit` ticks.
    pub fn half_open(&self) {
        for proxy in &self.to_others {
            proxy.refuse();
            proxy.cut();
        }
        self.to_leader.refuse();
        self.to_leader.half_open();
    }
}

impl ZooKeeperEnsemble {
    /// Starts three of which the last leads, and the first follows it through a proxy: held back, the
    /// proxy cuts that one off from its leader and from nobody else.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with_far_follower(options: &ZooKeeperOptions) -> (Self, Proxy) {
        let (ensemble, links) = start(options, Far::Follower);
        (ensemble, links.to_leader)
    }

    /// Starts three of which the last leads, and can be cut off from both others.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with_far_leader(options: &ZooKeeperOptions) -> (Self, LeaderLinks) {
        start(options, Far::Leader)
    }
}

/// Which of three has proxies between it and the others: the first or the last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Far {
    Follower,
    Leader,
}

fn start(options: &ZooKeeperOptions, far: Far) -> (ZooKeeperEnsemble, LeaderLinks) {
    loop {
        match try_start(options, far) {
            Ok(started) => return started,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => panic!("ZooKeeper does not start: {error}"),
        }
    }
}

fn try_start(options: &ZooKeeperOptions, far: Far) -> io::Result<(ZooKeeperEnsemble, LeaderLinks)> {
    let mut options = options.clone().with_default("initLimit", "20");
    let (mut members, mut peers) = (Vec::new(), Vec::new());
    for id in 1..=3 {
        members.push(Ports::free(&options)?);
        let (quorum, election) = (free_port()?, free_port()?);
        peers.push((quorum, election));
        options = options.with_default(&format!("server.{id}"), &peer(quorum, election));
    }
    let to_leader = Proxy::of_bytes(peers[2].0);
    let mut to_others = Vec::new();
    let mut far_options = options.clone();
    if far == Far::Leader {
        for (id, (quorum, election)) in (1..).zip(&peers[..2]) {
            let proxy = Proxy::of_bytes(*quorum);
            let behind = peer(proxy.port(), *election);
            far_options = far_options.with_config(&format!("server.{id}"), &behind);
            to_others.push(proxy);
        }
    }
    let leader = peer(to_leader.port(), peers[2].1);
    let near_options = options.clone().with_config("server.3", &leader);
    let start = |id: usize| {
        let options = match (id, far) {
            (1, _) | (2, Far::Leader) => &near_options,
            (3, Far::Leader) => &far_options,
            _ => &options,
        };
        let options = options.clone();
        let options = options.with_file(&format!("{DATA}/myid"), &id.to_string());
        ZooKeeperServer::start_at(members[id - 1], options, Ready::Runs)
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
    let links = LeaderLinks {
        to_leader,
        to_others,
    };
    Ok((ensemble, links))
}

fn peer(quorum: u16, election: u16) -> String {
    format!("127.0.0.1:{quorum}:{election}")
}
