//! Notifications of broken locks.

use lock_core::{DistributedLock, LockGuard, LostReason};
use lock_redis::Redlock;
use lock_testkit::servers::{RedisNodes, RedisServer, Reply};
use tokio::time::Instant;

use super::support::{SOON, all_voted, client, loss, ms, request, start, until, within};

/// The first renewal is due after 40 s.
async fn held(locks: &Redlock, name: &str) -> LockGuard {
    let request = within(request(name), SOON).with_ttl(ms(120_000));
    locks.acquire(&request).await.expect("it is free")
}

fn is_heard(node: &RedisServer) -> bool {
    let heard = node.command(&["PUBSUB", "NUMSUB", "polylock:broken"]);
    heard.items().get(1).and_then(Reply::integer) == Some(1)
}

/// Any of a few attempts is quick, on a machine that is busy with other tests.
async fn assert_notified(nodes: &RedisNodes, down: &[usize]) {
    let (locks, operator) = (client(nodes).await, client(nodes).await);
    // The first lock has the connections listen.
    drop(held(&locks, "first").await);
    until("the client listens", || nodes.iter().all(is_heard)).await;
    for node in down {
        nodes[*node].stop();
    }
    let mut took = Vec::new();
    for attempt in 0..10 {
        let guard = held(&locks, &format!("a{attempt}")).await;
        let admin = operator.admin().expect("it has one");
        let began = Instant::now();
        // It waits for all nodes.
        let (broken, lost) = tokio::join!(admin.break_lock(guard.key(), "test"), async {
            (loss(&guard).await, began.elapsed())
        });
        assert!(broken.expect("a majority answers").is_some());
        assert_eq!(lost.0, LostReason::Broken);
        took.push(lost.1);
        if lost.1 < ms(50) {
            down.iter().for_each(|node| nodes[*node].resume());
            return;
        }
    }
    panic!("notified late: {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_reaches_the_holder_at_once() {
    assert_notified(&start(3), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_reaches_the_holder_at_once_while_nodes_hang() {
    assert_notified(&start(5), &[0, 3]).await;
}

/// One of three nodes has broken it, as if nobody could reach the others.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_publishes_costs_no_lock() {
    let nodes = start(3);
    let locks = client(&nodes).await;
    let guard = held(&locks, "a").await;
    until("the client listens", || nodes.iter().all(is_heard)).await;
    all_voted(&nodes, "a").await;
    let value = nodes[1].command(&["GET", "a"]).text().expect("it is held");
    nodes[1].command(&["DEL", "a"]);
    let message = format!("broken|{}", &value[..32]);
    nodes[0].command(&["PEXPIRE", "a", "60000"]);
    until("the lease is renewed", || {
        nodes[1].command(&["PUBLISH", "polylock:broken", &message]);
        nodes[0].command(&["PTTL", "a"]).integer() > Some(60_000)
    })
    .await;
    assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
}
