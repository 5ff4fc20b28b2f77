//! Private Sentinels: they know the master, and replace it.

use lock_testkit::servers::{RedisSentinels, RedisServer, Reply};

#[test]
fn sentinels_without_a_replica_know_the_master() {
    let watched = RedisSentinels::start_light();
    assert_eq!(watched.servers().len(), 1);
    assert_eq!(watched.master().port(), watched.servers()[0].port());
    assert_eq!(watched.ports().len(), 3);
    for sentinel in watched.sentinels() {
        assert_eq!(named_by(sentinel), i64::from(watched.master().port()));
    }
}

#[test]
fn sentinels_refer_clients_to_the_proxy() {
    let (watched, proxy) = RedisSentinels::start_light_behind_proxy();
    for sentinel in watched.sentinels() {
        assert_eq!(named_by(sentinel), i64::from(proxy.port()));
    }
    assert_eq!(watched.master().port(), watched.servers()[0].port());
}

#[test]
fn a_replica_takes_the_place_of_the_master_by_order() {
    let watched = RedisSentinels::start();
    let replica = watched.replica().port();
    watched.master().command(&["SET", "key", "value"]);
    watched.wait_for_replica();
    watched.fail_over();
    assert_eq!(watched.master().port(), replica);
    let value = watched.master().command(&["GET", "key"]);
    assert_eq!(value, Reply::Bulk(b"value".to_vec()));
}

#[test]
fn a_replica_takes_the_place_of_a_master_that_died() {
    let watched = RedisSentinels::start();
    let replica = watched.replica().port();
    watched.master().kill();
    watched.wait_for_fail_over(0);
    assert_eq!(watched.master().port(), replica);
}

fn named_by(sentinel: &RedisServer) -> i64 {
    let name = [
        "SENTINEL",
        "GET-MASTER-ADDR-BY-NAME",
        RedisSentinels::MASTER,
    ];
    let address = sentinel.command(&name);
    address.items()[1].integer().expect("a port")
}
