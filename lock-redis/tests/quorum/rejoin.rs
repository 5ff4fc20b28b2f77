//! Nodes that have restarted.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{Fsync, RedisNodes, RedisOptions, RedisServer};
use polylock_core::layers::LocalQueue;
use polylock_core::{DistributedLock, ErrorKind, LostReason};
use tokio::time::Instant;

use super::nodes::{PATIENT, config, holders, open, open_with_delay};
use super::support::{
    SOON, TTL, acquire, all_free, all_voted, assert_error, assert_refused, assert_took, lease,
    loss_by_renewal, ms, once, release, request, start, stays_held, take, to, token, until, within,
};
use crate::support::waiting;

const DELAY: Duration = Duration::from_secs(2);

/// Longer than nodes have to be watched.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Clients of this ensemble take no votes of nodes that are younger than the delay.
async fn careful(nodes: &RedisNodes) -> Arc<polylock_redis::Redlock> {
    open_with_delay(to(nodes), DELAY).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ensemble_that_has_just_started_is_waited_for() {
    let nodes = start(3);
    let began = Instant::now();
    let locks = careful(&nodes).await;
    let error = assert_refused(&locks, request("a"), ErrorKind::Unavailable).await;
    assert!(error.message().contains("votes again in"), "{error}");
    assert!(
        error.is_retryable() && !error.is_outcome_unknown(),
        "{error:?}"
    );
    let guard = acquire(&locks, &within(request("a"), TIMEOUT)).await;
    assert_took("waiting for the first votes", began, DELAY..);
    release(guard).await;
}

/// The local queue ends the wait, while the attempt of the backend goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_nodes_that_do_not_vote_yet_says_for_how_long() {
    let nodes = start(3);
    let queue = LocalQueue::new(open_with_delay(to(&nodes), TIMEOUT * 60).await);
    let short = within(request("a"), ms(300));
    let mut says = String::new();
    // On a busy machine a wait may end before the first replies.
    lock_testkit::locks::until("a wait ends with its reason", async || {
        let error = assert_error(&queue, &short, ErrorKind::Unavailable).await;
        assert!(error.is_outcome_unknown(), "an attempt is under way");
        says = error.message().to_owned();
        says.starts_with("fewer than 2 of 3 nodes vote: ")
    })
    .await;
    let (_, left) = says.split_once("votes again in ").expect(&says);
    let (left, _) = left.split_once("s (rejoin-delay)").expect(&says);
    let left: u64 = left.parse().expect(&says);
    assert!(left <= TIMEOUT.as_secs() * 60, "{says}");
}

/// Where clients note on a node how old they know it to be.
const AGES: &str = "{polylock:age}:notes:notes";

/// For how long clients have told a node that it is up, together with the run that they saw.
fn noted(node: &RedisServer) -> Option<(String, u64)> {
    let note = node.command(&["GET", AGES]).text()?;
    let (run, age) = note.split_once('|').expect("a run and an age");
    Some((run.to_owned(), age.parse().expect("a number")))
}

fn is_noted(node: &RedisServer) -> bool {
    let least = u64::try_from(DELAY.as_millis()).expect("it is short");
    noted(node).is_some_and(|(_, age)| age >= least)
}

/// Waits until clients do not have to wait for the nodes any more.
async fn grown_up(nodes: &RedisNodes) {
    until("all nodes are noted to be old", || {
        nodes.iter().all(is_noted)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_come_later_do_not_wait() {
    let nodes = start(3);
    let first = careful(&nodes).await;
    // It only has to be connected.
    grown_up(&nodes).await;
    let second = careful(&nodes).await;
    let guard = second.acquire(&once(request("a"))).await;
    release(guard.expect("the nodes are known to be old")).await;
    let guard = first.acquire(&once(request("a"))).await;
    release(guard.expect("it has watched them")).await;
}

/// After a restart with all data, the noted age is there, but does not count.
#[tokio::test(flavor = "multi_thread")]
async fn an_age_belongs_to_one_run_of_a_node() {
    let nodes = RedisNodes::start(3, &RedisOptions::new().with_aof(Fsync::Always));
    let watching = careful(&nodes).await;
    grown_up(&nodes).await;
    let before = noted(&nodes[1]);
    for node in nodes.iter().take(2) {
        node.restart();
    }
    assert_eq!(noted(&nodes[1]), before, "the file has it");
    for locks in [watching, careful(&nodes).await] {
        assert_refused(&locks, request("a"), ErrorKind::Unavailable).await;
    }
}

/// None of them lives for as long as the delay.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_come_and_go_watch_together() {
    let nodes = start(3);
    let began = Instant::now();
    let guard = loop {
        assert!(began.elapsed() < SOON * 4, "their time does not add up");
        let locks = careful(&nodes).await;
        let taken = locks.acquire(&within(request("a"), DELAY / 4)).await;
        assert!(locks.shutdown(SOON).await);
        match taken {
            Ok(guard) => break guard,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    };
    assert_took("waiting for the first votes", began, DELAY..);
    release(guard).await;
}

/// While a lock is held and no client asks for a vote.
#[tokio::test(flavor = "multi_thread")]
async fn holders_watch_a_node_that_restarts() {
    let nodes = start(3);
    let locks = careful(&nodes).await;
    // All three grant the lock: of two, the one that restarts would take the majority with it.
    grown_up(&nodes).await;
    let guard = take(&locks, "a").await;
    nodes[1].restart();
    grown_up(&nodes).await;
    assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
}

/// A client without the right to the notes has to watch the nodes itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_the_key_for_ages_waits_by_itself() {
    let rules = "on >secret ~a ~{a* &* +@all";
    let nodes = RedisNodes::start(3, &RedisOptions::new().with_user("locks", rules));
    let old = careful(&nodes).await;
    grown_up(&nodes).await;
    let locks = open_with_delay(to(&nodes).with_login("locks", "secret"), DELAY).await;
    let began = Instant::now();
    assert_refused(&locks, request("a"), ErrorKind::Unavailable).await;
    let guard = acquire(&locks, &within(request("a"), TIMEOUT)).await;
    assert_took("waiting for the first votes", began, DELAY - SLACK..);
    release(guard).await;
    release(take(&old, "a").await).await;
}

/// From the first answer of the nodes to the return of `connect`.
const SLACK: Duration = Duration::from_secs(1);

/// Nodes that lose power, come back empty, and then have their clocks set.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_node_does_not_vote_and_a_clock_that_steps_makes_it_no_older() {
    for seconds in [0, 3_600, -3_600] {
        restart_two_and_set_their_clocks(seconds).await;
    }
}

async fn restart_two_and_set_their_clocks(seconds: i64) {
    let nodes = RedisNodes::start(3, &RedisOptions::new().with_clock());
    let (locks, other) = (careful(&nodes).await, careful(&nodes).await);
    let guard = acquire(&locks, &within(lease("a").with_ttl(DELAY), TIMEOUT)).await;
    assert!(locks.shutdown(SOON).await);
    for node in nodes.iter().take(2) {
        node.restart();
        node.set_clock_offset(seconds);
    }
    let stranger = careful(&nodes).await;
    while guard.is_held() {
        for locks in [&locks, &other, &stranger] {
            let taken = locks.acquire(&once(request("a"))).await;
            if taken.is_ok() && guard.is_held() {
                let left = guard.valid_until().map(|until| until - Instant::now());
                panic!("two holders for up to {left:?}");
            }
        }
        tokio::time::sleep(ms(10)).await;
    }
    let next = acquire(&other, &within(request("a"), TIMEOUT)).await;
    assert!(token(&next) > token(&guard));
    release(next).await;
}

/// The third node is slow, and remembers a token that a clock as late as theirs does not reach.
#[tokio::test(flavor = "multi_thread")]
async fn voters_that_forget_and_are_late_ask_the_one_that_remembers() {
    for still_held in [false, true] {
        let nodes = RedisNodes::start(3, &RedisOptions::new().with_clock());
        let locks = open(to(&nodes)).await;
        let guard = acquire(&locks, &lease("a").with_ttl(SOON * 6)).await;
        let last = token(&guard);
        all_voted(&nodes, "a").await;
        if !still_held {
            release(guard).await;
            all_free(&nodes, "a").await;
        }
        for node in nodes.iter() {
            node.set_clock_offset(-3_600);
        }
        for node in nodes.iter().take(2) {
            node.command(&["FLUSHALL"]);
        }
        let slow = Proxy::start(nodes[2].port());
        slow.set_latency(Direction::Both, ms(15));
        let ports = [nodes[0].port(), nodes[1].port(), slow.port()];
        let next = take(&open(config(ports, PATIENT)).await, "a").await;
        assert!(
            token(&next) > last,
            "held by the third node: {still_held}; {} after {last}",
            token(&next)
        );
        release(next).await;
    }
}

/// It refuses before the others vote.
#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_an_early_refusal_is_continued() {
    for (clocks, offset) in [("late", -3_600), ("right", 0)] {
        let nodes = RedisNodes::start(3, &RedisOptions::new().with_clock());
        nodes[2].set_clock_offset(3_600);
        let locks = open(to(&nodes)).await;
        let guard = acquire(&locks, &lease("a").with_ttl(SOON * 6)).await;
        all_voted(&nodes, "a").await;
        let last = token(&guard);
        let slow = nodes.iter().take(2).map(|node| {
            node.command(&["FLUSHALL"]);
            node.set_clock_offset(offset);
            let slow = Proxy::start(node.port());
            slow.set_latency(Direction::Both, ms(50));
            slow
        });
        let slow: Vec<_> = slow.collect();
        let ports = [slow[0].port(), slow[1].port(), nodes[2].port()];
        let next = take(&open(config(ports, PATIENT)).await, "a").await;
        let next_token = token(&next);
        assert!(
            next_token > last,
            "{clocks} clocks: {next_token} after {last}"
        );
        release(next).await;
    }
}

/// Another program has written it, or the clock of the node is broken: no script could count on from it, and no later
/// vote would count.
#[tokio::test(flavor = "multi_thread")]
async fn a_counter_beyond_all_tokens_is_not_continued() {
    let nodes = start(3);
    nodes[2].command(&["SET", "{a}:fence", "9999999999999999|of another program"]);
    nodes[2].command(&["SET", "a", "of another client"]);
    let slow = nodes.iter().take(2).map(|node| {
        let slow = Proxy::start(node.port());
        slow.set_latency(Direction::Both, ms(50));
        slow
    });
    let slow: Vec<_> = slow.collect();
    let ports = [slow[0].port(), slow[1].port(), nodes[2].port()];
    let locks = open(config(ports, PATIENT)).await;
    for n in 0..2 {
        let guard = take(&locks, "a").await;
        let token = token(&guard);
        assert!(token < 1 << 53, "token {token} of grant {n}");
        release(guard).await;
    }
}

/// It does not vote, but tells the token that it has in its file.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_rejoins_tells_the_token_that_it_remembers() {
    let options = RedisOptions::new().with_aof(Fsync::Always).with_clock();
    let nodes = RedisNodes::start(3, &options);
    let locks = careful(&nodes).await;
    grown_up(&nodes).await;
    let guard = take(&locks, "a").await;
    let last = token(&guard);
    all_voted(&nodes, "a").await;
    release(guard).await;
    all_free(&nodes, "a").await;
    assert!(locks.shutdown(SOON).await);
    drop(locks);
    for node in nodes.iter() {
        node.set_clock_offset(-3_600);
    }
    for node in nodes.iter().take(2) {
        let keys = node.command(&["KEYS", "*"]);
        let keys = keys.items().iter().filter_map(|key| key.text());
        for key in keys.filter(|key| *key != AGES) {
            node.command(&["DEL", &key]);
        }
    }
    nodes[2].restart();
    let before = noted(&nodes[2]).map(|(run, _)| run);
    let other = careful(&nodes).await;
    until("the client has reached the third node", || {
        noted(&nodes[2]).map(|(run, _)| run) != before
    })
    .await;
    let next = take(&other, "a").await;
    assert_eq!(holders(&nodes[2], "a"), 0, "it votes already");
    assert!(token(&next) > last, "{} after {last}", token(&next));
    release(next).await;
}

/// Why there is a delay: without one, the same history has two holders.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgetful_node_that_votes_at_once_breaks_the_lock() {
    let nodes = start(3);
    let at_once = open(to(&nodes)).await;
    let guard = acquire(&at_once, &lease("a").with_ttl(DELAY)).await;
    assert!(at_once.shutdown(SOON).await);
    nodes[2].command(&["DEL", "a"]);
    nodes[1].restart();
    let second = take(&at_once, "a").await;
    assert!(guard.is_held() && second.is_held(), "it held");
    // Only the order of the tokens remains.
    assert!(token(&second) > token(&guard));
    assert_eq!(loss_by_renewal(&guard).await, LostReason::Stolen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_does_not_write_a_lock_again() {
    let nodes = start(3);
    let locks = open(to(&nodes)).await;
    let guard = take(&locks, "a").await;
    nodes[1].restart();
    stays_held(&guard, TTL).await;
    assert_eq!(nodes[1].command(&["EXISTS", "a"]).integer(), Some(0));
    nodes[2].restart();
    assert_eq!(loss_by_renewal(&guard).await, LostReason::Stolen);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_outlasts_the_delay() {
    let nodes = start(3);
    let locks = careful(&nodes).await;
    let long = DELAY + ms(1);
    for too_long in [
        request("a").with_ttl(long),
        request("a").with_min_hold(long),
    ] {
        let error = assert_error(&locks, &too_long, ErrorKind::InvalidRequest).await;
        assert!(error.message().contains("rejoin-delay"), "{error}");
    }
}

/// A task that gets the lock from another one of its process asks no node.
///
/// On one thread, a task that is spawned is in the queue before the test goes on.
#[tokio::test]
async fn no_min_hold_of_a_lock_that_is_handed_over_outlasts_the_delay() {
    let nodes = start(3);
    let queue = Arc::new(LocalQueue::new(careful(&nodes).await));
    let guard = acquire(&*queue, &within(request("a"), TIMEOUT)).await;
    let next = waiting(&queue, request("a").with_min_hold(DELAY + ms(1)));
    tokio::task::yield_now().await;
    release(guard).await;
    let error = next.await.expect("no panic").expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_info_is_denied() {
    let rules = "on >secret ~* &* +@all -info";
    let nodes = RedisNodes::start(3, &RedisOptions::new().with_user("locks", rules));
    let config = to(&nodes).with_login("locks", "secret");
    let locks = open_with_delay(config.clone(), DELAY).await;
    let _error = assert_error(&locks, &within(request("a"), TIMEOUT), ErrorKind::Denied).await;
    // Without a delay the right is not needed.
    release(take(&*open(config).await, "a").await).await;
}
