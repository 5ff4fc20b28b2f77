//! Private Redis Clusters: they serve, slots move, replicas take over.

use std::time::Duration;

use lock_testkit::servers::{RedisCluster, Reply, RespClient};

#[test]
fn masters_serve_writes_soon_after_the_start() {
    let cluster = RedisCluster::start(3, 0);
    assert_eq!(cluster.len(), 3);
    for key in ["a", "b", "c", "d", "e", "f"] {
        let owner = &cluster[cluster.owner_of(cluster.slot_of(key))];
        let script = ["EVAL", "return redis.call('INCR', KEYS[1])", "1", key];
        assert_eq!(owner.command(&script), Reply::Integer(1), "{key}");
    }
    let nodes = cluster[0]
        .command(&["CLUSTER", "NODES"])
        .text()
        .expect("text");
    assert_eq!(nodes.lines().count(), 3, "{nodes}");
    assert!(!nodes.contains("fail"), "{nodes}");
    let refusal = cluster.iter().find_map(|node| {
        let reply = node.command(&["GET", "a"]);
        reply.is_error().then(|| reply.text().expect("text"))
    });
    let target = cluster[cluster.owner_of(cluster.slot_of("a"))].port();
    let moved = format!("MOVED {} 127.0.0.1:{target}", cluster.slot_of("a"));
    assert_eq!(refusal, Some(moved));
}

#[test]
fn clients_are_referred_to_the_proxies() {
    let (cluster, proxies) = RedisCluster::start_behind_proxies(3, 0);
    let ports: Vec<_> = proxies
        .iter()
        .map(lock_testkit::proxy::Proxy::port)
        .collect();
    assert_eq!(cluster.ports(), ports);
    let patience = Duration::from_secs(5);
    for port in &ports {
        let mut client = RespClient::connect(*port, patience).expect("connected");
        let slots = client.command(&["CLUSTER", "SLOTS"]).expect("a reply");
        let mut named: Vec<_> = slots
            .items()
            .iter()
            .filter_map(|range| range.items()[2].items()[1].integer())
            .collect();
        named.sort_unstable();
        let mut expected: Vec<_> = ports.iter().map(|port| i64::from(*port)).collect();
        expected.sort_unstable();
        assert_eq!(named, expected);
    }
}

#[test]
fn a_slot_moves_with_its_keys() {
    let cluster = RedisCluster::start(3, 0);
    let slot = cluster.slot_of("key");
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    cluster[from].command(&["SET", "key", "value"]);
    cluster.begin_move(slot, to);
    cluster.move_key("key", from, to);
    let ask = cluster[from].command(&["GET", "key"]).text().expect("text");
    assert!(ask.starts_with("ASK "), "{ask}");
    cluster.end_move(slot, to);
    assert_eq!(cluster.owner_of(slot), to);
    assert_eq!(
        cluster[to].command(&["GET", "key"]).text().as_deref(),
        Some("value")
    );
    cluster.move_slot(slot, from);
    assert_eq!(
        cluster[from].command(&["GET", "key"]).text().as_deref(),
        Some("value")
    );
}

#[test]
fn replicas_take_over_by_order_and_by_themselves() {
    let cluster = RedisCluster::start(3, 3);
    let slot = cluster.slot_of("key");
    let master = cluster.owner_of(slot);
    let replica = master + 3;
    let mut client = cluster[master].connect();
    client.command(&["SET", "key", "value"]).expect("a reply");
    let acknowledged = client.command(&["WAIT", "1", "5000"]);
    assert_eq!(acknowledged.expect("a reply"), Reply::Integer(1));
    cluster.take_over(replica);
    assert_eq!(cluster.owner_of(slot), replica);
    assert_eq!(
        cluster[replica].command(&["GET", "key"]).text().as_deref(),
        Some("value")
    );

    let other = (master + 1) % 3;
    cluster[other].kill();
    cluster.wait_for_master(other + 3);
}
