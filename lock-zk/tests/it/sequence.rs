//! The sequence numbers of a lock run out, and the line goes on.
//!
//! The server counts by an `int`. At 2147483647 it sticks and gives the same number again and again,
//! or negative ones to nodes that are created before the one before them is stored.

use std::sync::Arc;

use lock_testkit::proxy::{Command, Fate, Proxy};
use lock_testkit::servers::ZooKeeperServer;
use polylock_core::{ErrorKind, Label, Mode, Wait};
use polylock_zk::{Compat, ZooKeeper};
use tokio::task::JoinHandle;

use crate::support::snapshot::{patchable, set_next_number};
use crate::support::{
    Place, SOON, assert_error, config, granted, lasting, ms, open, release, request, seen, take,
    token, until,
};

/// A lock whose next contender has this number.
async fn at(number: i32) -> (ZooKeeperServer, Place) {
    let server = patchable();
    let place = Place::of(&server).await;
    let locks = place.client().await;
    let guard = take(&locks, "a").await;
    release(guard).await;
    drop(locks);
    set_next_number(&server, &place.tree().directory("a"), number);
    let answers = async || place.tree().client().check_stat("/").await.is_ok();
    until("the server is back", answers).await;
    (server, place)
}

/// A client behind a proxy, whose sessions do not end because the machine is busy.
async fn behind(proxy: &Proxy, place: &Place) -> Arc<ZooKeeper> {
    open(lasting(config(&[proxy.port()], place.root()), SOON * 2)).await
}

fn numbers(nodes: &[String]) -> Vec<i64> {
    let number = |node: &String| node.rsplit_once("-lock-")?.1.parse().ok();
    nodes.iter().filter_map(number).collect()
}

fn noted(n: usize) -> polylock_core::AcquireRequest {
    let label = Label::of_this_process().with_note(n.to_string());
    request("a")
        .with_label(label)
        .with_wait(Wait::AtMost(SOON * 6))
}

/// The holders and the waiters by their notes, as `inspect` shows them.
async fn line(locks: &ZooKeeper) -> Vec<String> {
    let Some(seen) = seen(locks, "a").await else {
        return Vec::new();
    };
    let holders = seen.holders.iter().map(|holder| &holder.label);
    let labels = holders.chain(seen.waiters.iter().flatten());
    labels.map(|label| label.note().to_owned()).collect()
}

#[tokio::test]
async fn the_line_keeps_its_order_beyond_the_last_number() {
    let (server, place) = at(i32::MAX - 7).await;
    let proxy = Proxy::zookeeper(server.port());
    let (first, other) = (place.client().await, behind(&proxy, &place).await);
    let events = proxy.watch_pushes(|_| true);
    let mut line_of_20 = Vec::new();
    for n in 0..20 {
        let locks = if n == 0 { &first } else { &other };
        line_of_20.push(place.waiter(locks, noted(n)).await);
    }
    let numbers = numbers(&place.tree().nodes("a").await);
    println!("numbers {numbers:?}");
    let last = i64::from(i32::MAX);
    assert_eq!(numbers.iter().filter(|number| **number == last).count(), 13);
    let expected: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(line(&first).await, expected);
    // One holder at a time, in the order of their creation, each woken by one event.
    let mut tokens = Vec::new();
    for n in 0..20 {
        let guard = granted(line_of_20.remove(0)).await;
        assert!(
            !line_of_20.iter().any(JoinHandle::is_finished),
            "two holders"
        );
        tokens.push(token(&guard));
        let told = events.count();
        assert_eq!(told, n, "one event for each release");
        release(guard).await;
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    begins_anew(&place, &first, tokens[19]).await;
}

/// The directory is gone with the last of them, and the numbers begin at 0 in the next one.
async fn begins_anew(place: &Place, locks: &Arc<ZooKeeper>, last: u64) {
    let gone = async || !place.tree().exists("a").await;
    until("the directory is deleted", gone).await;
    let guard = take(locks, "a").await;
    assert_eq!(numbers(&place.tree().nodes("a").await), [0]);
    assert!(token(&guard) > last);
    release(guard).await;
    assert!(place.tree().exists("a").await);
}

#[tokio::test]
async fn a_downgrade_beyond_the_last_number_is_refused() {
    let (_server, place) = at(i32::MAX).await;
    let locks = place.client().await;
    let mut guard = take(&locks, "a").await;
    let refused = guard.downgrade().await.expect_err("there is no number");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(guard.is_held());
    let reader = request("a").with_mode(Mode::Shared).with_wait(Wait::Never);
    assert_error(&locks, &reader, ErrorKind::Contended).await;
    let next = place.waiter(&locks, request("a")).await;
    release(guard).await;
    release(granted(next).await).await;
    // In a directory of its own again, it goes on as before.
    let mut guard = take(&locks, "a").await;
    guard.downgrade().await.expect("there are numbers");
    release(guard).await;
}

/// The last number that tells a place in line.
const LAST: i32 = i32::MAX - (1 << 20) - 1;

#[tokio::test]
async fn a_downgrade_at_the_last_number_lets_no_writer_beside_the_reader() {
    let (_server, place) = at(LAST).await;
    let (one, two) = (place.client().await, place.client().await);
    let mut holder = take(&one, "a").await;
    let writer = place.waiter(&two, request("a")).await;
    let numbers = numbers(&place.tree().nodes("a").await);
    assert_eq!(numbers, [i64::from(LAST), i64::from(LAST) + 1]);
    holder.downgrade().await.expect("there are numbers");
    tokio::time::sleep(ms(500)).await;
    assert!(holder.is_held() && !writer.is_finished(), "two holders");
    let reader = request("a").with_mode(Mode::Shared).with_wait(Wait::Never);
    assert_error(&one, &reader, ErrorKind::Contended).await;
    let before = token(&holder);
    release(holder).await;
    let writer = granted(writer).await;
    assert!(token(&writer) > before);
    release(writer).await;
}

#[tokio::test]
async fn a_token_beyond_the_last_number_is_younger_than_what_made_its_owner_the_first() {
    let (server, place) = at(LAST + 10).await;
    let proxy = Proxy::zookeeper(server.port());
    let slow = behind(&proxy, &place).await;
    let other = place.client().await;
    let first = take(&other, "a").await;
    let second = place.waiter(&other, request("a")).await;
    let is_look = |command: &Command| command.is("EXISTS") && command.arg(1).contains("-lock-");
    let planned = proxy.plan(is_look, Fate::LateRequest(ms(1_000)));
    // It has listed the line, and asks for their creation when both have gone.
    let third = place.waiter(&slow, noted(3)).await;
    planned.met(SOON).await;
    release(first).await;
    let second = granted(second).await;
    let before = token(&second);
    release(second).await;
    let left = place.tree().nodes("a").await.len();
    assert_eq!(left, 1, "too late for this test");
    let third = granted(third).await;
    assert!(token(&third) > before, "{third:?} after {before}");
    release(third).await;
}

#[tokio::test]
async fn a_directory_that_kazoo_may_use_stays_beyond_the_last_number() {
    let (_server, place) = at(i32::MAX - 1).await;
    let locks = open(place.config().with_compat(Compat::Kazoo)).await;
    let mut last = None;
    for _ in 0..4 {
        let guard = take(&locks, "a").await;
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        release(guard).await;
        assert!(place.tree().exists("a").await);
    }
}
