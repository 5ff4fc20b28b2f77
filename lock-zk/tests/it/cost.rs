//! The cost of a lock: requests of each acquisition, events of each release.

use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::future::join_all;
use lock_testkit::{BusyEngine, polled_once};
use polylock_core::layers::LocalQueue;
use polylock_core::{AcquireRequest, DistributedLock, LockGuard, Result};
use polylock_zk::ZooKeeper;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::counted::{Count, Counted};
use crate::support::{
    Place, SOON, admin, granted, handed_over, key, ms, open, permits, release, seen, take, token,
    until, waiting, within,
};

fn patient() -> AcquireRequest {
    within("a", SOON * 6)
}

fn permit() -> AcquireRequest {
    patient().with_mode(permits(2))
}

/// Waits until a lock has so many waiters.
async fn waiters(locks: &ZooKeeper, count: usize) {
    let waiting = async || {
        let seen = seen(locks, "a").await;
        seen.and_then(|seen| seen.waiters).map_or(0, |w| w.len()) == count
    };
    until("so many wait", waiting).await;
}

/// Waiters of these clients by turns, in the order of their arrival.
async fn line(
    holder: &ZooKeeper,
    clients: &[Arc<ZooKeeper>],
    count: usize,
    one: &AcquireRequest,
) -> Vec<JoinHandle<Result<LockGuard>>> {
    let mut line = Vec::new();
    for n in 0..count {
        line.push(waiting(&clients[n % clients.len()], one.clone()));
        waiters(holder, n + 1).await;
    }
    line
}

/// Waits until no more requests and events come for 150 ms, of which a stall of the machine is one step.
async fn quiet(place: &Counted) {
    let (mut last, mut steps) = (place.count(), 0);
    while steps < 15 {
        tokio::time::sleep(ms(10)).await;
        let count = place.count();
        let is_quiet = (count.requests, count.events) == (last.requests, last.events);
        steps = if is_quiet { steps + 1 } else { 0 };
        last = count;
    }
}

#[tokio::test]
async fn a_free_lock_costs_three_requests() {
    let place = Counted::start();
    let locks = place.client().await;
    release(take(&locks, "a").await).await;
    let (before, received) = (place.count(), place.received());
    for _ in 0..100 {
        release(take(&locks, "a").await).await;
    }
    let (count, received) = (place.count() - before, place.received() - received);
    let later = place.count() - before;
    // Held for 0.1 s by a slow machine, a lock costs a watch.
    assert_eq!(count.requests, 300 + count.watches);
    assert!(count.watches < 10);
    // The server counts its own question. A heartbeat may come before it.
    let sent = |count: Count| i64::try_from(count.requests + count.beats).expect("it is small");
    let expected = sent(count)..=sent(later);
    assert!(expected.contains(&(received - 1)), "{received}: {count:?}");
}

#[tokio::test]
async fn a_lock_that_is_held_for_longer_costs_a_watch_on_its_node() {
    let place = Counted::start();
    let locks = place.client().await;
    release(take(&locks, "a").await).await;
    for _ in 0..3 {
        let before = place.count();
        let guard = take(&locks, "a").await;
        let watched = async || (place.count() - before).watches > 0;
        until("its node is watched", watched).await;
        tokio::time::sleep(ms(300)).await;
        release(guard).await;
        let count = place.count() - before;
        assert_eq!((count.requests, count.watches), (4, 1), "{count:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_others_want_costs_five_requests() {
    let place = Counted::start();
    let clients = [place.client().await, place.client().await];
    release(take(&clients[0], "a").await).await;
    let (hand_offs, last) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let before = place.count();
    let mut tasks = JoinSet::new();
    for (place, locks) in (1..).zip(clients) {
        let (hand_offs, last) = (Arc::clone(&hand_offs), Arc::clone(&last));
        tasks.spawn(async move {
            let mut locked = 0_usize;
            // While one of them is stalled, the other one has the lock alone.
            while locked < 60 || hand_offs.load(Ordering::SeqCst) < 50 {
                locked += 1;
                let guard = locks.acquire(&patient()).await.expect("it is granted");
                let changed = last.swap(place, Ordering::SeqCst) != place;
                hand_offs.fetch_add(usize::from(changed), Ordering::SeqCst);
                release(guard).await;
            }
            locked
        });
    }
    let locked: usize = tasks.join_all().await.into_iter().sum();
    let count = place.count() - before;
    let hand_offs = hand_offs.load(Ordering::SeqCst);
    assert!(hand_offs >= 50, "{hand_offs} hand-offs");
    let requests = count.requests - count.own_watches;
    assert!(requests <= 5 * locked, "{locked} locks: {count:?}");
}

#[tokio::test]
async fn a_release_wakes_one_of_fifty() {
    let place = Counted::start();
    let holder = place.uncounted().await;
    let mut guard = take(&holder, "a").await;
    let clients = join_all((0..10).map(|_| place.client())).await;
    let line = line(&holder, &clients, 50, &patient()).await;
    quiet(&place).await;
    let before = place.count();
    for (n, next) in line.into_iter().enumerate() {
        release(guard).await;
        guard = granted(next).await;
        let events = (place.count() - before).events;
        assert_eq!(events, n + 1, "one event for each release");
    }
    release(guard).await;
    quiet(&place).await;
    let count = place.count() - before;
    assert_eq!(count.events, 50);
    // To list again, and to delete the node.
    assert_eq!(count.requests, 2 * 50 + count.watches);
}

#[tokio::test]
async fn the_end_of_a_permit_wakes_two_at_most() {
    let place = Counted::start();
    let holder = place.uncounted().await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(holder.acquire(&permit()).await.expect("it is granted"));
    }
    let clients = join_all((0..10).map(|_| place.client())).await;
    let line = line(&holder, &clients, 10, &permit()).await;
    let mut most = 0;
    for next in line {
        quiet(&place).await;
        // Not counting that a holder hears of the end of its own node.
        let before = place.changes();
        release(held.remove(0)).await;
        held.push(granted(next).await);
        quiet(&place).await;
        most = most.max(place.changes() - before);
    }
    assert_eq!(most, 2);
}

#[tokio::test]
async fn a_watch_of_an_administrator_reads_the_nodes_of_holders() {
    let place = Counted::start();
    let (locks, other) = (place.client().await, place.uncounted().await);
    let first = take(&other, "a").await;
    let line = line(&other, slice::from_ref(&other), 5, &patient()).await;
    let admin = admin(&locks);
    let named = || (place.named("GETCHILDREN"), place.named("GETDATA"));
    let before = named();
    let events = admin.watch("").await.expect("it answers");
    until("two looks", async || named().1 - before.1 >= 2).await;
    drop(events);
    tokio::time::sleep(ms(300)).await;
    let (looks, reads) = (named().0 - before.0, named().1 - before.1);
    // Each look lists the root and the directory of the lock.
    assert!(reads >= 2 && 2 * reads <= looks, "{reads} of {looks}");
    // The list must show all that any server has acknowledged.
    assert_eq!(place.syncs(), 0);
    let seen = admin.inspect(&key("a")).await.expect("it answers");
    assert_eq!(seen.and_then(|seen| seen.waiters).map(|w| w.len()), Some(5));
    assert_eq!(place.syncs(), 1);
    release(first).await;
    for next in line {
        release(granted(next).await).await;
    }
}

/// Together they are what a follower of an election sends.
#[tokio::test]
async fn an_inspection_reads_each_contender_and_a_record_costs_two_requests() {
    let place = Counted::start();
    let (locks, other) = (place.client().await, place.uncounted().await);
    let first = take(&other, "a").await;
    let line = line(&other, slice::from_ref(&other), 5, &patient()).await;
    let before = place.count();
    assert!(seen(&locks, "a").await.is_some());
    // A sync, a list, and the nodes of the holder and of the waiters.
    assert_eq!((place.count() - before).requests, 2 + 6);
    let before = place.count();
    let record = admin(&locks).record(&key("a")).await;
    assert!(record.expect("it answers").is_none());
    assert_eq!((place.count() - before).requests, 2);
    release(first).await;
    for next in line {
        release(granted(next).await).await;
    }
}

#[tokio::test]
async fn a_hand_over_costs_nothing_and_the_tokens_of_256_a_write() {
    let place = Counted::start();
    let locks = place.client().await;
    let queue = LocalQueue::new(locks).with_max_handovers(1_000);
    release(queue.acquire(&patient()).await.expect("it is granted")).await;
    for (hand_overs, writes) in [(1, 0), (255, 0), (256, 1), (600, 2)] {
        let (before, written) = (place.count(), place.named("SETDATA"));
        let mut guard = queue.acquire(&patient()).await.expect("it is granted");
        for _ in 0..hand_overs {
            let before = token(&guard);
            guard = handed_over(&queue, guard).await;
            assert!(token(&guard) > before);
        }
        release(guard).await;
        let (count, written) = (place.count() - before, place.named("SETDATA") - written);
        assert_eq!(written, writes);
        assert_eq!(count.requests, 3 + written + count.watches);
    }
}

/// The threads of callers write their requests themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_does_not_wait_for_the_engine() {
    let place = Place::new().await;
    let locks = open(place.config()).await;
    release(take(&locks, "a").await).await;

    let busy = BusyEngine::start();
    let request = patient();
    let mut acquisition = pin!(locks.acquire(&request));
    let granted = polled_once(acquisition.as_mut()).await;
    place.contenders("a", 1).await;
    drop(busy);
    let guard = match granted {
        Poll::Ready(granted) => granted,
        Poll::Pending => acquisition.await,
    };

    let busy = BusyEngine::start();
    let mut released = pin!(guard.expect("it is granted").release());
    let answered = polled_once(released.as_mut()).await;
    place.contenders("a", 0).await;
    drop(busy);
    let released = match answered {
        Poll::Ready(released) => released,
        Poll::Pending => released.await,
    };
    released.expect("it is released");
}
