//! ZooKeeper on hosts of its own: a leader that has lost its followers and does not know.

use std::thread;
use std::time::{Duration, Instant};

use lock_testkit::network::Network;
use lock_testkit::servers::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};

#[test]
fn a_leader_that_is_cut_off_believes_in_followers_that_elect_another() {
    let network = Network::new().unwrap();
    let hosts = ["a", "b", "c"].map(|name| network.host(name));
    let began = Instant::now();
    // Long enough to see both leaders on a busy machine: the old one leaves after 10 s of silence.
    let options = ZooKeeperOptions::new().with_config("syncLimit", "20");
    let ensemble = ZooKeeperEnsemble::start_on(&hosts.each_ref(), &options);
    println!("ready after {:?}", began.elapsed());
    let leader = ensemble.leader();
    assert!(ensemble.url().contains(&hosts[2].address().to_string()));

    let began = Instant::now();
    for follower in (0..3).filter(|place| *place != leader) {
        network.reset(&hosts[follower], &hosts[leader]);
    }
    let another = ensemble.leader_besides(leader);
    println!("two leaders after {:?}", began.elapsed());
    assert_eq!(mode(&ensemble.servers()[leader]), "leader");
    assert_ne!(another, leader);
    // It steps down when it has missed them for its sync limit.
    wait(|| mode(&ensemble.servers()[leader]) != "leader");
    println!("one leader after {:?}", began.elapsed());

    network.heal();
    wait(|| mode(&ensemble.servers()[leader]) == "follower");
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

fn wait(met: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !met() {
        assert!(Instant::now() < deadline, "it does not come");
        thread::sleep(Duration::from_millis(5));
    }
}

fn mode(server: &ZooKeeperServer) -> String {
    server.mode().unwrap_or_default()
}
