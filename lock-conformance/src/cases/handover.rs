//! Leases that are handed over from task to task inside a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::DistributedLock;
use polylock_core::layers::LocalQueue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Case;
use super::case::SOON;
use super::fencing::token;
use super::support::{granted, released, served, started};

/// A lock that is handed over from task to task has a larger token each time.
pub async fn tokens_grow_over_hand_overs(case: Case) {
    let (queue, key) = (case.queue().await, case.key());
    let mut guard = case.lock(&*queue, &key).await;
    for n in 0..40 {
        let (next, request) = (Arc::clone(&queue), case.request(&key));
        let waiting = started(async move { next.acquire(&request).await }).await;
        let last = token(&guard);
        if n % 2 == 0 {
            guard.release().await.expect("a held lock is released");
        } else {
            drop(guard);
        }
        guard = served(waiting).await;
        assert!(token(&guard) > last, "token {} after {last}", token(&guard));
    }
    let last = token(&guard);
    guard.release().await.expect("a held lock is released");
    let after = case.lock(&*case.client().await, &key).await;
    assert!(token(&after) > last, "token {} after {last}", token(&after));
}

/// A lease that was handed over is renewed for its next holder.
pub async fn a_lock_that_was_handed_over_is_kept_beyond_its_ttl(case: Case) {
    let (queue, key) = (case.queue().await, case.key());
    let guard = case.lock(&*queue, &key).await;
    let (next, request) = (Arc::clone(&queue), case.request(&key));
    let waiting = started(async move { next.acquire(&request).await }).await;
    drop(guard);
    let guard = waiting.await.expect("no panic").expect("it is granted");
    tokio::time::sleep(case.ttl().mul_f64(1.3)).await;
    case.assert_kept(&guard).await;
    guard.release().await.expect("a held lock is released");
    case.assert_nothing_left(&*queue, &key).await;
}

/// A process that is always busy with a lock lets another one in.
pub async fn handing_over_lets_another_client_in(case: Case) {
    let (queue, key) = (case.queue().await, case.key());
    let done = Arc::new(AtomicBool::new(false));
    let mut busy = JoinSet::new();
    for _ in 0..8 {
        let (queue, done, request) = (Arc::clone(&queue), Arc::clone(&done), case.request(&key));
        busy.spawn(async move {
            while !done.load(Ordering::SeqCst) {
                let guard = queue.acquire(&request).await.expect("the task is served");
                tokio::time::sleep(Duration::from_millis(1)).await;
                guard.release().await.expect("a held lock is released");
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    let other = case.client().await;
    let served = other.acquire(&case.request_within(&key, SOON * 2)).await;
    done.store(true, Ordering::SeqCst);
    released(served.expect("the other client is starved")).await;
    busy.join_all().await;
}

/// Where the server is fair, the other client's turn comes after the hand-overs that are allowed.
pub async fn handing_over_is_bounded(case: Case) {
    let (other, key) = (case.client().await, case.key());
    let queue = LocalQueue::new(case.client().await).with_max_handovers(4);
    let guard = case.lock(&queue, &key).await;
    let (served, mut order) = mpsc::unbounded_channel();
    for _ in 0..12 {
        let (queue, request, served) = (queue.clone(), case.request(&key), served.clone());
        let task = async move {
            let guard = queue.acquire(&request).await.expect("the task is served");
            served.send("here").expect("the test listens");
            tokio::time::sleep(Duration::from_millis(2)).await;
            guard.release().await.expect("a held lock is released");
        };
        drop(started(task).await);
    }
    let request = case.request(&key);
    tokio::spawn(async move {
        let guard = granted(&other, &request).await;
        served.send("there").expect("the test listens");
        guard.release().await.expect("a held lock is released");
    });
    case.queued(&key, 1).await;
    guard.release().await.expect("a held lock is released");
    let mut before = 0;
    while tokio::time::timeout(SOON, order.recv())
        .await
        .expect("somebody is served")
        == Some("here")
    {
        before += 1;
    }
    assert_eq!(before, 4, "hand-overs before the other client's turn");
}
