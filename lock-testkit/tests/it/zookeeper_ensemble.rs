//! Private ZooKeeper ensembles: they elect a leader, lose it, and elect another.

use lock_testkit::servers::{ZooKeeperEnsemble, ZooKeeperOptions};

#[test]
fn an_ensemble_elects_a_leader_and_survives_its_death() {
    let ensemble = ZooKeeperEnsemble::start(3, &ZooKeeperOptions::new());
    assert_eq!(ensemble.addresses().len(), 3);
    assert!(ensemble.url().starts_with("zk://127.0.0.1:"));
    let first = ensemble.leader();
    ensemble.servers()[first].kill();
    let second = ensemble.leader();
    assert_ne!(first, second);
    ensemble.servers()[first].restart();
    ensemble.settle();
    let mode = ensemble.servers()[first].mode();
    assert_eq!(mode.as_deref(), Some("follower"));
}

#[test]
fn a_member_without_a_quorum_runs_and_does_not_serve() {
    let ensemble = ZooKeeperEnsemble::start(3, &ZooKeeperOptions::new());
    let servers = ensemble.servers();
    servers[0].kill();
    servers[1].kill();
    servers[0].kill();
    servers[2].restart();
    assert_eq!(servers[2].four_letter("ruok"), "imok");
    assert_eq!(servers[2].mode(), None);
    servers[0].restart();
    ensemble.settle();
    assert_ne!(ensemble.leader(), 1);
}
