//! What locks cost the nodes.

use lock_testkit::servers::RedisServer;
use polylock_core::DistributedLock;
use tokio::time::Instant;

use super::support::{
    SOON, acquire, all_voted, client, lease, ms, release, request, start, take, within,
};
use crate::support::{commands, release_lost};

/// How many scripts a node has run for its clients.
fn calls(node: &RedisServer) -> u64 {
    commands(node)["evalsha"]
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_travel_together() {
    let nodes = start(3);
    let locks = client(&nodes).await;
    let mut guards = Vec::new();
    for n in 0..300 {
        let long = request(&format!("k{n}")).with_ttl(ms(6_000));
        guards.push(acquire(&locks, &long).await);
    }
    assert!(locks.shutdown(SOON).await);
    let (began, before) = (Instant::now(), calls(&nodes[0]));
    tokio::time::sleep(ms(4_000)).await;
    let periods = began.elapsed().as_secs_f64() / 2.0;
    let renewals = calls(&nodes[0]) - before;
    // A period is a third of the ttl.
    assert!(
        renewals as f64 <= 10.0 * periods,
        "{renewals} in {periods} periods"
    );
    assert!(guards.iter().all(|guard| guard.is_held()));
}

/// An uncontended lock costs each node one call to take it, and one to give it back.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_agree_need_no_second_round() {
    let nodes = start(3);
    let locks = client(&nodes).await;
    release(take(&locks, "a").await).await;
    assert!(locks.shutdown(SOON).await);
    let before = calls(&nodes[0]);
    for _ in 0..50 {
        release(take(&locks, "a").await).await;
    }
    assert!(locks.shutdown(SOON).await);
    let calls = calls(&nodes[0]) - before;
    assert!((100..115).contains(&calls), "{calls} calls for 50 locks");
}

/// A release that meets no lock may have overtaken its vote, which a note keeps out for a minute.
#[tokio::test(flavor = "multi_thread")]
async fn releases_that_come_too_late_leave_nothing_that_piles_up() {
    let nodes = start(3);
    let locks = client(&nodes).await;
    // No lease ends while others vote.
    let long = within(lease("a").with_ttl(SOON * 6), SOON);
    for _ in 0..100 {
        let guard = acquire(&locks, &long).await;
        all_voted(&nodes, "a").await;
        for node in nodes.iter() {
            node.command(&["DEL", "a"]);
        }
        release_lost(guard).await;
        assert!(locks.shutdown(SOON).await);
        for node in nodes.iter() {
            // As if a minute had passed.
            node.command(&["EVAL", AGE, "1", "{a}:notes"]);
        }
    }
    for node in nodes.iter() {
        let notes = node.command(&["HKEYS", "{a}:notes"]);
        let count = notes.items().len();
        assert!((1..10).contains(&count), "{count} notes: {notes:?}");
    }
}

/// Makes the notes of releases a minute older.
const AGE: &str = "for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do \
    local at = tonumber(redis.call('HGET', KEYS[1], f)) \
    redis.call('HSET', KEYS[1], f, string.format('%.0f', at - 60001)) end";
