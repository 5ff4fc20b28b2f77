//! The queue inside a process, on top of the backend.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::layers::LocalQueue;
use polylock_core::{DistributedLock, DistributedLockExt, ErrorKind};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Case;
use super::case::{LATE, SOON};
use super::support::{Spy, When, answered, granted, released, served, started, timed_out};

/// A thousand tasks are one contender on the server.
pub async fn a_thousand_tasks_are_one_contender(case: Case) {
    let (holder, key) = (case.client().await, case.key());
    let (spy, client) = Spy::on(case.client().await);
    let guard = holder.lock(&key).await.expect("a free lock is granted");
    let queue = Arc::new(LocalQueue::new(client));
    let mut tasks = Vec::new();
    for _ in 0..1_000 {
        let (queue, request) = (Arc::clone(&queue), case.request(&key));
        let task = async move {
            let guard = queue.acquire(&request).await.expect("the task is served");
            guard.release().await.expect("a held lock is released");
        };
        tasks.push(started(task).await);
    }
    case.queued(&key, 1).await;
    if let Some(look) = case.harness().look(&key).await {
        assert!(look.waiters <= 1, "{look:?}");
    }
    assert_eq!((spy.under_way(), spy.calls()), (1, 1));
    guard.release().await.expect("a held lock is released");
    for task in tasks {
        task.await.expect("no task panics");
    }
    assert_eq!(spy.most(), 1);
    assert_eq!(queue.live_keys(), 0, "lines are left");
    case.assert_nothing_left(&*queue, &key).await;
}

/// The tasks of a process are served in the order of their arrival.
pub async fn tasks_are_served_in_the_order_of_their_arrival(case: Case) {
    let (queue, key) = (case.queue().await, case.key());
    let guard = case.lock(&*queue, &key).await;
    let (served, mut order) = mpsc::unbounded_channel();
    for n in 0..40 {
        let (queue, request, served) = (Arc::clone(&queue), case.request(&key), served.clone());
        let task = async move {
            let guard = queue.acquire(&request).await.expect("the task is served");
            served.send(n).expect("the test listens");
            guard.release().await.expect("a held lock is released");
        };
        drop(started(task).await);
    }
    drop(served);
    guard.release().await.expect("a held lock is released");
    for n in 0..40 {
        let next = tokio::time::timeout(SOON * 2, order.recv())
            .await
            .expect("a task is served");
        assert_eq!(next, Some(n));
    }
    assert_eq!(order.recv().await, None);
    assert_eq!(queue.live_keys(), 0, "lines are left");
}

/// Tasks that give up, wherever they are in line, swallow no wake-up.
pub async fn a_task_that_gives_up_swallows_no_wake_up(case: Case) {
    let (queue, key) = (case.queue().await, case.key());
    for round in 0..8 {
        let guard = case.lock(&*queue, &key).await;
        let mut tasks = Vec::new();
        for _ in 0..6 {
            let (queue, request) = (Arc::clone(&queue), case.request(&key));
            let task = async move { drop(queue.acquire(&request).await.expect("it is granted")) };
            tasks.push(started(task).await);
        }
        let release = tokio::spawn(guard.release());
        for (n, task) in tasks
            .iter()
            .enumerate()
            .filter(|(n, _)| (round >> (n % 3)) & 1 == 1)
        {
            if n % 2 == 0 {
                tokio::task::yield_now().await;
            }
            task.abort();
        }
        let answer = release.await.expect("no panic");
        answer.expect("a held lock is released");
        for task in tasks {
            match tokio::time::timeout(SOON, task)
                .await
                .expect("the tasks are served")
            {
                Ok(()) => {}
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        }
        case.assert_nothing_left(&*queue, &key).await;
        assert_eq!(queue.live_keys(), 0, "lines are left");
    }
}

/// The task after a contender that gave up takes over its place on the server.
pub async fn the_place_of_a_contender_that_gave_up_is_taken_over(case: Case) {
    let (holder, key) = (case.client().await, case.key());
    let (spy, client) = Spy::on(case.client().await);
    let queue = LocalQueue::new(client);
    let guard = case.lock(&*holder, &key).await;
    let [first, second] = [queue.clone(), queue.clone()].map(|queue| {
        let request = case.request(&key);
        async move { queue.acquire(&request).await }
    });
    let (first, second) = (started(first).await, started(second).await);
    case.queued(&key, 1).await;
    first.abort();
    assert!(first.await.is_err_and(|error| error.is_cancelled()));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(
        (spy.under_way(), spy.calls()),
        (1, 1),
        "the place was given up"
    );
    guard.release().await.expect("a held lock is released");
    let next = served(second).await;
    next.release().await.expect("a held lock is released");
    assert_eq!(queue.live_keys(), 0, "lines are left");
    case.assert_nothing_left(&queue, &key).await;
}

/// A wait in the line of the process ends at its limit, like one on the server.
pub async fn a_wait_in_the_queue_ends_at_its_limit(case: Case) {
    let (queue, key) = (case.queue().await, case.key());
    let guard = case.lock(&*queue, &key).await;
    let (limit, began) = (Duration::from_millis(300), Instant::now());
    let answer = queue.lock_within(&key, limit).await;
    let waited = began.elapsed();
    let error = answer.expect_err("two hold the lock");
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    assert!(
        waited >= limit && waited < limit + LATE,
        "timed out after {waited:?}"
    );
    let (began, attempt) = (Instant::now(), queue.try_lock(&key).await);
    assert!(attempt.expect("contention is no error").is_none());
    assert!(began.elapsed() < limit, "try_lock waited");
    guard.release().await.expect("a held lock is released");
    // The same behind another process, which only the backend can tell from a silent server.
    let holder = case.client().await;
    let guard = holder.lock(&key).await.expect("a free lock is granted");
    let wait = async || queue.lock_within(&key, limit * 2).await;
    timed_out(&queue, wait).await;
    guard.release().await.expect("a held lock is released");
    case.assert_nothing_left(&*queue, &key).await;
}

/// The queue has a max length.
pub async fn a_full_queue_refuses(case: Case) {
    let queue = LocalQueue::new(case.client().await).with_max_waiters(2);
    let key = case.key();
    let guard = case.lock(&queue, &key).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let (queue, request) = (queue.clone(), case.request(&key));
        waiting.push(started(async move { queue.acquire(&request).await }).await);
    }
    let answer = queue.acquire(&case.request(&key)).await;
    let error = answer.expect_err("the line is full");
    assert_eq!(error.kind(), ErrorKind::QueueFull, "{error}");
    let gone = waiting.remove(1);
    gone.abort();
    assert!(gone.await.is_err_and(|error| error.is_cancelled()));
    // Its place is free again.
    let (next, request) = (queue.clone(), case.request(&key));
    waiting.push(started(async move { next.acquire(&request).await }).await);
    guard.release().await.expect("a held lock is released");
    for task in waiting {
        drop(task.await.expect("no panic").expect("it is granted"));
    }
    case.assert_nothing_left(&queue, &key).await;
}

/// Tasks do not wait for a holder of their process that has lost the lock.
pub async fn tasks_do_not_wait_for_a_holder_that_lost_the_lock(case: Case) {
    let (queue, key) = (case.queue().await, case.key());
    let lease = case.unrenewed(&key);
    let lost = queue.acquire(&lease).await.expect("a free lock is granted");
    let patient = case.patient(&key);
    let next = granted(&queue, &patient).await;
    assert!(!lost.is_held() && next.is_held());
    drop(lost);
    assert!(queue.shutdown(SOON).await, "background work does not end");
    case.assert_taken(&key).await;
    next.release().await.expect("a held lock is released");
    assert_eq!(queue.live_keys(), 0, "lines are left");
}

/// A request that is dropped after its k-th poll leaves neither a line nor a lock.
pub async fn acquire_dropped_after_each_poll_leaves_no_line(case: Case) {
    let (queue, key) = (case.queue().await, case.key());
    for (polls, when) in (1..).flat_map(|polls| [(polls, When::AtOnce), (polls, When::Woken)]) {
        let request = case.request(&key);
        let answer = answered(polls, when, queue.acquire(&request)).await;
        if let Some(answer) = answer {
            released(answer.expect("it is granted")).await;
            assert_eq!(queue.live_keys(), 0, "lines are left");
            return;
        }
        assert_eq!(queue.live_keys(), 0, "lines are left after {polls} polls");
        case.assert_nothing_left(&*queue, &key).await;
    }
}
