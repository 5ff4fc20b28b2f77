//! Nodes that have restarted.

use std::time::Duration;

use lock_core::{DistributedLock, ErrorKind, LostReason};
use lock_testkit::servers::{RedisNodes, RedisOptions};
use tokio::time::Instant;

use super::nodes::open;
use super::support::{
    SOON, TTL, lease, ms, once, release, request, start, take, to, token, within,
};

const DELAY: Duration = Duration::from_secs(2);

/// Longer than nodes have to be up, which is cut to whole seconds at both ends.
const PATIENCE: Duration = Duration::from_secs(8);

/// Clients of this ensemble take no votes of nodes that are younger than the delay.
async fn careful(nodes: &RedisNodes) -> std::sync::Arc<lock_redis::Redlock> {
    open(to(nodes).with_rejoin_delay(DELAY).expect("it is in range")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ensemble_that_has_just_started_is_waited_for() {
    let nodes = start(3);
    let began = Instant::now();
    let locks = careful(&nodes).await;
    let error = locks.acquire(&once(request("a"))).await;
    let error = error.expect_err("nobody votes yet");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error.message().contains("does not vote for another"),
        "{error}"
    );
    assert!(
        error.is_retryable() && !error.is_outcome_unknown(),
        "{error:?}"
    );
    let guard = locks.acquire(&within(request("a"), PATIENCE)).await;
    let guard = guard.expect("they vote in the end");
    assert!(began.elapsed() >= DELAY - ms(500), "{:?}", began.elapsed());
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_restarts_empty_does_not_vote() {
    let nodes = start(3);
    let (locks, other) = (careful(&nodes).await, careful(&nodes).await);
    let guard = locks
        .acquire(&within(lease("a").with_ttl(DELAY), PATIENCE))
        .await;
    let guard = guard.expect("they vote in the end");
    let before = token(&guard);
    assert!(locks.shutdown(SOON).await);
    // It has not got the lock on one node, and another one forgets it.
    nodes[2].command(&["DEL", "a"]);
    nodes[1].restart();
    while guard.is_held() {
        let refused = other.acquire(&once(request("a"))).await;
        assert!(refused.is_err() || !guard.is_held(), "two hold the lock");
        tokio::time::sleep(ms(10)).await;
    }
    let next = other.acquire(&within(request("a"), PATIENCE)).await;
    let next = next.expect("the lease is over");
    assert!(token(&next) > before);
    release(next).await;
}

/// Why there is a delay: without one, the same history has two holders.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgetful_node_that_votes_at_once_breaks_the_lock() {
    let nodes = start(3);
    let at_once = open(to(&nodes)).await;
    let guard = at_once.acquire(&lease("a").with_ttl(DELAY)).await;
    let guard = guard.expect("it is free");
    assert!(at_once.shutdown(SOON).await);
    nodes[2].command(&["DEL", "a"]);
    nodes[1].restart();
    let second = take(&at_once, "a").await;
    assert!(guard.is_held() && second.is_held(), "it held");
    // What is left is the order of the tokens.
    assert!(token(&second) > token(&guard));
    let renewed = guard.renew().await.expect_err("it is gone");
    assert_eq!(renewed.lost_reason(), Some(LostReason::Stolen));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_does_not_write_a_lock_again() {
    let nodes = start(3);
    let locks = open(to(&nodes)).await;
    let guard = take(&locks, "a").await;
    nodes[1].restart();
    tokio::time::sleep(TTL).await;
    assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
    assert_eq!(nodes[1].command(&["EXISTS", "a"]).integer(), Some(0));
    nodes[2].restart();
    let lost = tokio::time::timeout(SOON, guard.lost().into_future()).await;
    assert_eq!(lost.expect("it is lost"), LostReason::Stolen);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_outlasts_the_delay() {
    let nodes = start(3);
    let locks = careful(&nodes).await;
    let error = locks.acquire(&request("a").with_ttl(DELAY + ms(1))).await;
    let error = error.expect_err("a forgetful node would vote within it");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.message().contains("rejoin-delay"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_info_has_no_delay() {
    let rules = "on >secret ~* &* +@all -info";
    let nodes = RedisNodes::start(3, &RedisOptions::new().with_user("locks", rules));
    let config = to(&nodes).with_login("locks", "secret");
    let locks = open(config.with_rejoin_delay(DELAY).expect("it is in range")).await;
    let guard = take(&locks, "a").await;
    assert!(guard.is_held());
    release(guard).await;
}
