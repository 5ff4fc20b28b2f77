//! Renewals of several leases while nodes hang and leases are gone.

use lock_testkit::servers::{RedisNodes, RedisServer};
use polylock_core::{AcquireRequest, DistributedLock, ErrorKind, LockGuard, LostReason};
use polylock_redis::Redlock;
use tokio::time::Instant;

use super::nodes::{config, holders, open, open_with_delay};
use super::support::{
    SOON, TTL, all_voted, break_lock, client, loss, ms, request, start, stays_held, take, to,
    within,
};

/// Locks that all nodes have, and that are renewed together.
async fn take_all<const N: usize>(
    nodes: &RedisNodes,
    locks: &Redlock,
    names: [&str; N],
) -> [LockGuard; N] {
    let mut guards = Vec::new();
    for name in names {
        guards.push(take(locks, name).await);
    }
    for name in names {
        all_voted(nodes, name).await;
    }
    guards.try_into().expect("one for each name")
}

/// Acquires a lock again and again, until all nodes have it: one that has just started votes later than
/// the others, and a lease that is not there is not written by an extension.
async fn acquire_on_all(
    nodes: &RedisNodes,
    locks: &Redlock,
    request: &AcquireRequest,
) -> LockGuard {
    let name = request.key().as_str();
    let has_it = |node: &RedisServer| holders(node, name) == 1;
    let deadline = Instant::now() + SOON * 2;
    loop {
        let guard = locks.acquire(request).await.expect("it is free");
        tokio::time::sleep(ms(50)).await;
        if nodes.iter().all(has_it) {
            return guard;
        }
        assert!(Instant::now() < deadline, "a node does not vote");
        guard.release().await.expect("it is released");
    }
}

#[tokio::test]
async fn an_extension_is_no_longer_than_a_restarted_node_stays_out() {
    let nodes = start(3);
    let ports = nodes.iter().map(|node| node.port());
    let delay = TTL * 4;
    let locks = open_with_delay(config(ports, ms(250)), delay).await;
    let guard = acquire_on_all(&nodes, &locks, &within(request("a"), TTL * 30)).await;
    let error = guard.renew_for(delay + ms(1)).await;
    let error = error.expect_err("a node would vote for another holder");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    guard.renew_for(delay).await.expect("it is held");
    // Several renewals by the ttl arrive meanwhile.
    tokio::time::sleep(TTL * 3 / 2).await;
    let left = nodes[0].command(&["PTTL", "a"]).integer();
    assert!(left > Some(3_000), "the key expires in {left:?} ms");
    assert!(guard.release().await.is_ok());
}

fn delete(nodes: &RedisNodes, from: &[usize], names: &[&str]) {
    for node in from {
        for name in names {
            assert_eq!(nodes[*node].command(&["DEL", name]).integer(), Some(1));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_are_reported_and_others_renewed_while_a_node_hangs() {
    let nodes = start(3);
    // Each request to the hanging node takes this long.
    let locks = open(config(nodes.iter().map(|node| node.port()), ms(250))).await;
    let operator = client(&nodes).await;
    let names = ["held", "a", "b", "c", "d", "broken"];
    let [held, lost @ .., broken] = take_all(&nodes, &locks, names).await;
    let began = Instant::now();
    nodes[0].stop();
    delete(&nodes, &[1, 2], &["a", "b", "c", "d"]);
    break_lock(&operator, "broken").await;

    // A round without an answer would make the reason `Unreachable`, at the end of the lease.
    let reason = loss(&broken).await;
    assert_eq!(reason, LostReason::Broken, "after {:?}", began.elapsed());
    for guard in &lost {
        let reason = loss(guard).await;
        assert_eq!(reason, LostReason::Stolen, "after {:?}", began.elapsed());
    }
    stays_held(&held, TTL * 2).await;
    nodes[0].resume();
}

/// Until the node answers, it is unknown whether a majority has one of the leases.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_in_doubt_does_not_hold_up_the_others() {
    let nodes = start(3);
    let locks = open(to(&nodes)).await;
    let [held, doubtful] = take_all(&nodes, &locks, ["held", "doubtful"]).await;
    nodes[0].stop();
    delete(&nodes, &[1], &["doubtful"]);
    let reason = loss(&doubtful).await;
    assert_eq!(reason, LostReason::Unreachable, "no node refused");
    stays_held(&held, TTL * 2).await;
    nodes[0].resume();
}
