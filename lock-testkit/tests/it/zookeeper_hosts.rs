//! ZooKeeper on hosts of its own: a leader that has lost its followers and does not know.

use std::time::Duration;

use lock_testkit::network::Network;
use lock_testkit::servers::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};

use crate::support::within;

#[test]
fn a_leader_that_is_cut_off_believes_in_followers_that_elect_another() {
    let network = Network::new().unwrap();
    let hosts = ["a", "b", "c"].map(|name| network.host(name));
    // Long enough to see both leaders on a busy machine: the old one leaves after 10 s of silence.
    let options = ZooKeeperOptions::new().with_config("syncLimit", "20");
    let ensemble = ZooKeeperEnsemble::start_on(&hosts.each_ref(), &options);
    let leader = ensemble.leader();
    assert!(ensemble.url().contains(&hosts[2].address().to_string()));

    for follower in (0..3).filter(|place| *place != leader) {
        network.reset(&hosts[follower], &hosts[leader]);
    }
    let another = ensemble.leader_besides(leader);
    assert_eq!(mode(&ensemble.servers()[leader]), "leader");
    assert_ne!(another, leader);
    // It steps down when it has missed them for its sync limit.
    within(MINUTE, || mode(&ensemble.servers()[leader]) != "leader");

    network.heal();
    within(MINUTE, || mode(&ensemble.servers()[leader]) == "follower");
    assert_eq!(ensemble.leader(), another);
}

#[test]
fn a_member_that_lost_its_power_follows_again() {
    let network = Network::new().unwrap();
    let hosts = ["a", "b", "c"].map(|name| network.host(name));
    let ensemble = ZooKeeperEnsemble::start_on(&hosts.each_ref(), &ZooKeeperOptions::new());
    let leader = ensemble.leader();

    network.power_off(&hosts[leader]);
    let another = ensemble.leader_besides(leader);
    ensemble.servers()[leader].restart();
    network.rejoin(&hosts[leader]);
    ensemble.settle();
    assert_eq!(ensemble.leader(), another);
    assert_eq!(mode(&ensemble.servers()[leader]), "follower");
}

fn mode(server: &ZooKeeperServer) -> String {
    server.mode().unwrap_or_default()
}

const MINUTE: Duration = Duration::from_secs(60);
