//! Nodes that are down, frozen or cut off.

use lock_testkit::harness::Harness;
use lock_testkit::proxy::Fate;
use lock_testkit::servers::{RedisNodes, RedisOptions};
use polylock_core::memory::Request;
use polylock_core::{DistributedLock, ErrorKind, LostReason, Mode};
use tokio::time::Instant;

use super::nodes::{Nodes, config, open};
use super::support::{
    SOON, TTL, acquire, all_free, all_voted, assert_error, assert_refused, assert_took, break_lock,
    client, inspect, lease, loss, loss_by_renewal, ms, once, release, request, start, take, to,
    token, until, within,
};
use crate::support::{admin, is_kind, waiting};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_is_granted() {
    let nodes = start(5);
    let locks = client(&nodes).await;
    let guard = take(&locks, "held").await;
    for down in [0, 2, 3] {
        nodes[down].kill();
    }
    let began = Instant::now();
    let error = assert_refused(&locks, request("a"), ErrorKind::Unavailable).await;
    assert_took("one attempt", began, ..ms(1_500));
    assert!(
        error.message().contains("fewer than 3 of 5 nodes"),
        "{error}"
    );

    let began = Instant::now();
    let short = within(request("a"), ms(700));
    assert_error(&locks, &short, ErrorKind::Unavailable).await;
    assert_took("a wait of 700 ms", began, ms(600)..ms(2_000));

    assert_eq!(loss(&guard).await, LostReason::Unreachable);
    for down in [0, 2, 3] {
        nodes[down].restart();
    }
    release(take(&locks, "a").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_waits_for_frozen_nodes() {
    let nodes = start(5);
    let locks = client(&nodes).await;
    release(take(&locks, "a").await).await;
    // A release ends with the answer of a majority, and goes on with the others: a node that still
    // has the lock would make the next holder wait for the frozen ones.
    assert!(locks.shutdown(SOON).await, "the release does not end");
    nodes[0].stop();
    nodes[3].stop();
    let began = Instant::now();
    let guard = take(&locks, "a").await;
    let taken = began.elapsed();
    assert_refused(&locks, request("a"), ErrorKind::Contended).await;
    let refused = began.elapsed();
    release(guard).await;
    let released = began.elapsed();
    nodes[0].resume();
    nodes[3].resume();
    // Each would take as long as a node may, 1 s.
    assert!(
        released < ms(900),
        "granted after {taken:?}, refused after {refused:?}, released after {released:?}"
    );
    // Requests on their way to the frozen nodes leave nothing there.
    all_free(&nodes, "a").await;
    assert!(locks.shutdown(SOON).await, "background work does not end");
}

/// Nodes that are frozen have not confirmed that the lock is still held.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_in_silence_is_no_contention() {
    let nodes = Nodes::behind_proxies(3);
    let proxies = nodes.faults.proxies();
    let holder = nodes.client().await;
    let guard = take(&holder, "a").await;
    all_voted(&nodes.servers, "a").await;
    // An attempt that has no result when the wait ends, and long after that.
    let ports = proxies.iter().map(|proxy| proxy.port());
    let locks = open(config(ports, SOON * 4)).await;
    let asked = proxies[0].watch(is_kind(Request::Acquire));
    let next = waiting(&locks, within(request("a"), SOON));
    // The one before has found the lock held.
    until("another attempt", || asked.count() > 1).await;
    nodes.servers.iter().for_each(|node| node.stop());
    let ended = next.await.expect("no panic");
    nodes.servers.iter().for_each(|node| node.resume());
    let error = ended.expect_err("two holders");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    drop(guard);
    all_free(&nodes.servers, "a").await;
}

/// They may have forwarded the request.
#[tokio::test(flavor = "multi_thread")]
async fn votes_behind_proxies_that_got_no_reply_are_withdrawn() {
    let nodes = Nodes::behind_proxies(3);
    let locks = nodes.client().await;
    for proxy in nodes.faults.proxies() {
        let failure = Fate::Replaced("-upstream failure\r\n");
        proxy.plan(is_kind(Request::Acquire), failure);
    }
    let long = request("a").with_ttl(SOON * 12);
    let error = assert_refused(&*locks, long, ErrorKind::Unavailable).await;
    assert!(error.is_outcome_unknown(), "{error}");
    all_free(&nodes.servers, "a").await;
}

/// The first attempt finds another client's lock on one node, and waits for the two frozen nodes. Its
/// undo must not wait for them again: the next attempt has three votes.
#[tokio::test(flavor = "multi_thread")]
async fn undoing_an_attempt_waits_for_no_frozen_node() {
    let nodes = start(5);
    let timeout = ms(2_000);
    let patient = to(&nodes).with_node_timeout(timeout);
    let locks = open(patient.expect("it is in range")).await;
    release(take(&locks, "a").await).await;
    assert!(locks.shutdown(SOON).await, "the release does not end");
    nodes[1].command(&["SET", "a", "somebody else", "PX", "1500"]);
    nodes[0].stop();
    nodes[3].stop();
    let began = Instant::now();
    let lasting = within(request("a").with_ttl(SOON * 2), SOON * 2);
    let guard = locks.acquire(&lasting).await;
    assert_took("the second attempt", began, timeout..timeout * 3 / 2);
    release(guard.expect("three of five vote")).await;
    nodes[0].resume();
    nodes[3].resume();
    assert!(locks.shutdown(SOON).await, "background work does not end");
}

/// A copy of a request on a connection that was given up can come at any time.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_vote_request_gets_no_vote() {
    let nodes = Nodes::behind_proxies(3);
    let locks = nodes.client().await;
    let proxies = nodes.faults.proxies();
    let asked: Vec<_> = proxies
        .iter()
        .map(|proxy| proxy.watch(|command| command.has("a")))
        .collect();
    let guard = take(&locks, "a").await;
    let votes: Vec<_> = asked
        .iter()
        .map(|asked| asked.seen().into_iter().next())
        .collect();
    assert!(
        votes.iter().flatten().count() >= 2,
        "no majority was asked: {votes:?}"
    );
    release(guard).await;
    // Another client has the lock after that.
    release(take(&locks, "a").await).await;
    assert!(locks.shutdown(SOON).await, "background work does not end");
    // The timeout of a node, and a second.
    tokio::time::sleep(ms(1_600)).await;
    for (proxy, vote) in proxies.iter().zip(&votes) {
        if let Some(vote) = vote {
            proxy.replay(vote).expect("it is answered");
        }
    }
    let held = nodes.each(&["EXISTS", "a"]);
    let held: Vec<_> = held.iter().map(|reply| reply.integer()).collect();
    assert_eq!(held, [Some(0); 3], "nodes that gave a late copy their vote");
}

/// Another two of five nodes, whose clocks differ, are frozen each time, and the clients change.
#[tokio::test(flavor = "multi_thread")]
async fn every_majority_continues_the_tokens_of_the_others() {
    let nodes = RedisNodes::start(5, &RedisOptions::new().with_clock());
    for (node, hours) in nodes.iter().zip([0, 2, -1, 1, -2]) {
        node.set_clock_offset(hours * 3_600);
    }
    let mut last = 0;
    for round in 0..10 {
        let (one, other) = (round % 5, (round * 2 + 1) % 5);
        let locks = client(&nodes).await;
        nodes[one].stop();
        if other != one {
            nodes[other].stop();
        }
        let guard = take(&locks, "a").await;
        assert!(token(&guard) > last, "{} after {last}", token(&guard));
        last = token(&guard);
        release(guard).await;
        nodes[one].resume();
        nodes[other].resume();
        assert!(locks.shutdown(SOON).await, "background work does not end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_and_breaks_what_a_majority_has() {
    let nodes = start(5);
    let locks = client(&nodes).await;
    let guard = take(&locks, "a").await;
    let other = client(&nodes).await;
    nodes[0].kill();
    nodes[1].kill();
    let shown = inspect(&other, "a").await;
    assert_eq!(shown.holders[0].token, guard.fencing_token());
    break_lock(&other, "a").await;
    assert_eq!(loss(&guard).await, LostReason::Broken);
    nodes[2].kill();
    let admin = admin(&other);
    let error = admin.inspect(guard.key()).await.expect_err("two of five");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = admin.list("").await.expect_err("two of five");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_needs_a_majority() {
    let nodes = start(3);
    let locks = client(&nodes).await;
    nodes[0].kill();
    let mut guard = take(&locks, "a").await;
    guard.downgrade().await.expect("two of three answer");
    let reader = request("a").with_mode(Mode::Shared);
    let other = acquire(&locks, &within(reader, SOON)).await;
    release(other).await;
    release(guard).await;
    let mut guard = take(&locks, "a").await;
    nodes[1].kill();
    let downgraded = guard.downgrade().await;
    downgraded.expect_err("one of three answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_has_to_be_there_to_begin_with() {
    let nodes = start(3);
    nodes[0].kill();
    let locks = client(&nodes).await;
    nodes[1].kill();
    let error = polylock_redis::Redlock::connect(to(&nodes)).await;
    let error = error.expect_err("one of three is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    nodes[0].restart();
    release(take(&locks, "a").await).await;
}

/// Two nodes jump to the end of every lease or stop their clocks, one at a time.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_a_minority_may_jump() {
    let nodes = start(3);
    let (locks, other) = (client(&nodes).await, client(&nodes).await);
    for jump in [
        ["PEXPIRE", "a", "0"].as_slice(),
        ["PERSIST", "a"].as_slice(),
    ] {
        let guard = take(&locks, "a").await;
        assert!(locks.shutdown(SOON).await);
        nodes[1].command(jump);
        let until = Instant::now() + TTL * 3 / 2;
        while Instant::now() < until {
            assert_refused(&other, request("a"), ErrorKind::Contended).await;
            assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
            tokio::time::sleep(ms(20)).await;
        }
        release(guard).await;
    }
    // A node whose clock stands still frees no lease, and delays no client.
    let dead = acquire(&locks, &within(lease("b"), SOON)).await;
    assert!(locks.shutdown(SOON).await);
    nodes[0].command(&["PERSIST", "b"]);
    dead.abandon();
    release(take(&other, "b").await).await;
}

/// No quorum survives the loss of a majority's data; only the order of the tokens remains.
#[tokio::test(flavor = "multi_thread")]
async fn when_a_majority_forgets_a_holder_the_next_token_is_larger() {
    let nodes = start(3);
    let (locks, other) = (client(&nodes).await, client(&nodes).await);
    // A lease of a millisecond could be renewed before it ends.
    for forget in [["PEXPIRE", "a", "0"].as_slice(), ["FLUSHALL"].as_slice()] {
        // The reason of a loss is that of a renewal only if one is answered before the lease ends.
        let long = within(request("a").with_ttl(SOON * 6), SOON);
        let guard = acquire(&locks, &long).await;
        assert!(locks.shutdown(SOON).await);
        for node in nodes.iter().take(2) {
            node.command(forget);
        }
        let second = acquire(&other, &long).await;
        assert!(token(&second) > token(&guard), "{forget:?}");
        assert_eq!(loss_by_renewal(&guard).await, LostReason::Stolen);
        release(second).await;
        drop(guard);
        assert!(locks.shutdown(SOON).await);
    }
}

/// A client waits for the third node, but leaves time to agree with the other two.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_ahead_of_all_clocks_is_granted_within_a_short_wait() {
    let nodes = RedisNodes::start(3, &RedisOptions::new().with_clock());
    for node in nodes.iter() {
        node.set_clock_offset(-3_600);
    }
    // A busy machine may need longer, but not each time. After a second, the node counts as down.
    let mut rounds = 0;
    let mut is_granted = false;
    while !is_granted {
        rounds += 1;
        let locks = client(&nodes).await;
        release(take(&locks, "a").await).await;
        nodes[2].stop();
        for tries in 1..=3 {
            match locks.acquire(&within(request("a"), ms(300))).await {
                Ok(guard) => {
                    release(guard).await;
                    is_granted = true;
                    break;
                }
                Err(error) => assert!(rounds < 4 || tries < 3, "{error}"),
            }
        }
        nodes[2].resume();
        assert!(locks.shutdown(SOON).await);
    }
    let locks = client(&nodes).await;
    release(take(&locks, "a").await).await;
    nodes[2].stop();
    let began = Instant::now();
    release(acquire(&locks, &once(request("a"))).await).await;
    assert_took("an attempt without a limit", began, ms(400)..SOON);
}
