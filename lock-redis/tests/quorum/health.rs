//! Health checks of quorums with and without faults.

use lock_testkit::servers::{Fsync, RedisNodes, RedisOptions, RedisServer};
use polylock_core::{ErrorKind, Status};

use crate::health::{assert_one, check_health, faults, try_check};

fn url<'a>(nodes: impl IntoIterator<Item = &'a RedisServer>, params: &str) -> String {
    let hosts: Vec<_> = nodes
        .into_iter()
        .map(|node| format!("127.0.0.1:{}", node.port()))
        .collect();
    format!("redlock://{}?node-timeout=1s{params}", hosts.join(","))
}

fn fit(count: usize) -> RedisNodes {
    RedisNodes::start(count, &RedisOptions::new().with_aof(Fsync::Always))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_that_is_fit_has_no_fault() {
    let nodes = fit(3);
    let found = check_health(&url(&*nodes, "&rejoin-delay=0s")).await;
    for health in &found {
        assert_eq!(health.status, Status::Ok, "{health:?}");
    }
    for check in ["persistence", "nodes", "same-server", "rejoin"] {
        let of = found.iter().filter(|health| health.id == check);
        assert_eq!(of.count(), 1, "{check}");
    }
    for node in nodes.iter() {
        assert_eq!(node.command(&["DBSIZE"]).integer(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_quorum_is_found_by_its_name() {
    let nodes = fit(3);
    let three = &*nodes;
    let now = "&rejoin-delay=0s";
    nodes[1].command(&["CONFIG", "SET", "appendfsync", "everysec"]);
    let found = faults(&url(three, now)).await;
    assert_one(&found, "rejoin", "rejoin-delay is 0s");
    nodes[1].command(&["CONFIG", "SET", "appendfsync", "always"]);

    let skips_fsync = |value| {
        let reply = nodes[1].command(&["CONFIG", "SET", "no-appendfsync-on-rewrite", value]);
        assert!(!reply.is_error(), "{value}: {reply:?}");
    };
    skips_fsync("yes");
    let found = faults(&url(three, now)).await;
    assert!(
        found.iter().any(|fault| fault.starts_with("rejoin ")),
        "{found:?}"
    );
    skips_fsync("no");

    nodes[2].command(&["CONFIG", "SET", "maxmemory", "1gb"]);
    nodes[2].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let found = faults(&url(three, now)).await;
    let named = format!("127.0.0.1:{}: maxmemory-policy", nodes[2].port());
    assert_one(&found, "eviction", &named);
    nodes[2].command(&["CONFIG", "SET", "maxmemory", "0"]);

    let [one, other] = [nodes[0].port(), nodes[1].port()];
    let twice =
        format!("redlock://127.0.0.1:{one},127.0.0.1:{other},localhost:{one}?node-timeout=1s");
    let found = faults(&(twice + now)).await;
    let named = format!("127.0.0.1:{one} and localhost:{one} are");
    assert_one(&found, "same-server", &named);

    nodes[0].kill();
    let found = faults(&url(three, now)).await;
    let named = format!("1 of 3 masters do not answer: cannot connect to 127.0.0.1:{one}");
    assert_one(&found, "nodes", &named);

    nodes[1].kill();
    let error = try_check(&url(three, now)).await;
    let error = error.expect_err("no majority answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.backend(), Some("redlock"));
}
