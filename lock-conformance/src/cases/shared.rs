//! Readers together, writers alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::{AcquireRequest, DistributedLock, LockKey, Mode, Wait};
use tokio::task::JoinSet;

use super::Case;
use super::case::SOON;
use super::fencing::token;
use super::support::{contended, crowd, granted, noted, release_all, released, served};
use crate::history::{Checker, Recorder};

pub(super) fn reader(case: &Case, key: &LockKey) -> AcquireRequest {
    case.request(key).with_mode(Mode::Shared)
}

/// Several readers hold a lock at once, of one client and of others.
pub async fn readers_hold_together(case: Case) {
    let (here, there, key) = (case.client().await, case.client().await, case.key());
    let request = reader(&case, &key).with_wait(Wait::Never);
    let mut guards = Vec::new();
    for client in [&here, &here, &there] {
        guards.push(granted(client, &request).await);
    }
    assert!(guards.iter().all(polylock_core::LockGuard::is_held));
    release_all(guards).await;
    case.assert_free(&key).await;
}

/// No writer enters while readers hold the lock, and one does when the last of them leaves.
pub async fn a_writer_waits_for_the_last_reader(case: Case) {
    let (client, writer, key) = (case.client().await, case.client().await, case.key());
    let first = granted(&client, &reader(&case, &key)).await;
    let second = granted(&client, &reader(&case, &key)).await;
    let request = case.request(&key);
    let waiting = tokio::spawn(async move { writer.acquire(&request).await });
    first.release().await.expect("a held lock is released");
    case.queued(&key, 1).await;
    assert!(!waiting.is_finished(), "a writer entered beside a reader");
    case.assert_taken(&key).await;
    second.release().await.expect("a held lock is released");
    let guard = served(waiting).await;
    guard.release().await.expect("a held lock is released");
}

/// No reader enters while a writer holds the lock, and all waiting readers do when it leaves.
pub async fn readers_wait_for_the_writer_and_enter_together(case: Case) {
    let (writer, key) = (case.client().await, case.key());
    let guard = case.lock(&writer, &key).await;
    let inside = Arc::new(tokio::sync::Barrier::new(3));
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let (client, inside) = (case.client().await, Arc::clone(&inside));
        let request = reader(&case, &key);
        readers.spawn(async move {
            let guard = granted(&client, &request).await;
            // Passed only if all of them hold the lock at the same time.
            inside.wait().await;
            guard.release().await.expect("a held lock is released");
        });
    }
    case.queued(&key, 3).await;
    let request = reader(&case, &key).with_wait(Wait::Never);
    contended(&case.client().await, &request).await;
    guard.release().await.expect("a held lock is released");
    let served = tokio::time::timeout(SOON * 2, readers.join_all()).await;
    served.expect("waiting readers enter together");
}

/// A writer is served although a reader holds the lock at every moment.
pub async fn a_waiting_writer_is_not_starved_by_readers(case: Case) {
    let (key, done) = (case.key(), Arc::new(AtomicBool::new(false)));
    let mut readers = JoinSet::new();
    for n in 0..3 {
        let (client, done) = (case.client().await, Arc::clone(&done));
        let request = reader(&case, &key);
        readers.spawn(async move {
            tokio::time::sleep(Duration::from_millis(20 * n)).await;
            while !done.load(Ordering::SeqCst) {
                let guard = granted(&client, &request).await;
                tokio::time::sleep(Duration::from_millis(60)).await;
                guard.release().await.expect("a held lock is released");
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(80)).await;
    let writer = case.client().await;
    let served = writer.acquire(&case.request_within(&key, SOON)).await;
    done.store(true, Ordering::SeqCst);
    released(served.expect("the writer is starved")).await;
    readers.join_all().await;
}

/// A reader that died lets a writer in after its ttl, beside readers that live on.
pub async fn a_dead_reader_does_not_outlive_its_ttl(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let dead = granted(&client, &reader(&case, &key)).await;
    let alive = granted(&client, &reader(&case, &key)).await;
    dead.abandon();
    case.assert_taken(&key).await;
    tokio::time::sleep(case.ttl().mul_f64(0.5)).await;
    alive.release().await.expect("a held lock is released");
    case.assert_free_within(&key, case.after_death()).await;
}

/// Competing readers and writers never hold the lock together.
pub async fn readers_and_writers_that_compete_never_meet(case: Case) {
    let (key, recorder) = (case.key(), Recorder::new());
    crowd(&case, 3, 4, |client, task| {
        let recorder = recorder.clone();
        let requests = [reader(&case, &key), case.request(&key)];
        async move {
            for round in 0..4 {
                let request = &requests[usize::from((task + round) % 3 == 0)];
                let held = noted(&recorder, &client, request).await;
                tokio::task::yield_now().await;
                held.release().await.expect("a held lock is released");
            }
        }
    })
    .await;
    let summary = Checker::new().check(&recorder.events()).assert_clean();
    assert_eq!(summary.grants, 48);
    case.assert_free(&key).await;
}

/// A writer has a larger token than the readers before it, and those after it a larger one still.
pub async fn tokens_grow_between_readers_and_writers(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let mut last = 0;
    for shared in [true, false, true, true, false] {
        let request = if shared {
            reader(&case, &key)
        } else {
            case.request(&key)
        };
        let guard = granted(&client, &request).await;
        assert!(token(&guard) > last, "token {} after {last}", token(&guard));
        last = token(&guard);
        guard.release().await.expect("a held lock is released");
    }
}

/// A reader's lock is renewed like any other.
pub async fn a_reader_keeps_its_lock_beyond_its_ttl(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guards = [
        granted(&client, &reader(&case, &key)).await,
        granted(&client, &reader(&case, &key)).await,
    ];
    tokio::time::sleep(case.ttl().mul_f64(1.4)).await;
    case.assert_taken(&key).await;
    for guard in guards {
        assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
        guard.release().await.expect("a held lock is released");
    }
    case.assert_free(&key).await;
}
