//! Never two holders at once, judged by the history checker.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::{AcquireRequest, DistributedLock, DistributedLockExt, LockKey, Wait};

use super::Case;
use super::case::SOON;
use super::support::{contended, crowd, granted, noted, release_all};
use crate::history::{Checker, Counter, FencedRegister, Recorded, Recorder};

/// Sixteen tasks of four clients take turns, and there are never two holders.
pub async fn one_holder_at_a_time_among_many_tasks_and_clients(case: Case) {
    let (key, recorder) = (case.key(), Recorder::new());
    let register = Arc::new(FencedRegister::new(recorder.clone(), key.clone()));
    crowd(&case, 4, 4, |client, _| {
        let (case, key) = (case.clone(), key.clone());
        let (recorder, register) = (recorder.clone(), Arc::clone(&register));
        async move {
            for _ in 0..5 {
                let request = relaxed(&case, &key);
                let held = noted(&recorder, &client, &request).await;
                write(&held, &register);
                tokio::task::yield_now().await;
                assert!(held.look(), "a lock that is renewed is held");
                held.release().await.expect("a held lock is released");
            }
        }
    })
    .await;
    note_what_is_left(&case, &key, &recorder).await;
    let summary = Checker::new().check(&recorder.events()).assert_clean();
    assert_eq!((summary.grants, summary.stale_writes), (80, 0));
    case.assert_free(&key).await;
}

/// The same while half of the requests are dropped at some moment, and all of the guards.
pub async fn one_holder_at_a_time_although_futures_and_guards_are_dropped(case: Case) {
    let (key, recorder) = (case.key(), Recorder::new());
    let register = Arc::new(FencedRegister::new(recorder.clone(), key.clone()));
    crowd(&case, 3, 4, |client, task| {
        let (case, key) = (case.clone(), key.clone());
        let (recorder, register) = (recorder.clone(), Arc::clone(&register));
        async move {
            for round in 0..8 {
                let hurried = (task + round) % 2 == 0;
                let micros = u64::try_from(task * 709 + round * 311).unwrap_or(0) % 5_000;
                let limit = if hurried {
                    Duration::from_micros(micros)
                } else {
                    SOON
                };
                let request = case.request(&key);
                let acquired = tokio::time::timeout(limit, recorder.acquire(&client, &request));
                if let Ok(held) = acquired.await {
                    write(&held.expect("it is granted"), &register);
                    tokio::task::yield_now().await;
                } else {
                    assert!(hurried, "not granted within {SOON:?}");
                }
            }
            assert!(client.shutdown(SOON).await, "background work does not end");
        }
    })
    .await;
    note_what_is_left(&case, &key, &recorder).await;
    let summary = Checker::new().check(&recorder.events()).assert_clean();
    assert!(
        summary.grants >= 48 && summary.stale_writes == 0,
        "{summary:?}"
    );
    case.assert_free(&key).await;
}

async fn note_what_is_left(case: &Case, key: &LockKey, recorder: &Recorder) {
    if let Some(look) = case.harness().look(key).await {
        let count = |number| u64::try_from(number).unwrap_or(u64::MAX);
        recorder.left(key, count(look.holders), count(look.waiters));
    }
}

fn write(held: &Recorded, register: &FencedRegister) {
    if let Some(token) = held.fencing_token() {
        // A refusal is in the history, and counted at the end.
        let _noted = register.write(token);
    }
}

/// A request without a wait limit, with a lease and a release that a busy machine does not cut short.
fn relaxed(case: &Case, key: &LockKey) -> AcquireRequest {
    case.request(key)
        .with_ttl(3 * case.ttl())
        .with_wait(Wait::Forever)
}

/// A counter that is read and written in two steps loses nothing.
pub async fn no_increment_is_lost(case: Case) {
    let (key, counter) = (case.key(), Arc::new(Counter::default()));
    crowd(&case, 4, 3, |client, _| {
        let (case, key, counter) = (case.clone(), key.clone(), Arc::clone(&counter));
        async move {
            for _ in 0..5 {
                let request = relaxed(&case, &key);
                let guard = client.acquire(&request).await.expect("it is granted");
                counter.increment().await;
                guard.release().await.expect("a held lock is released");
            }
        }
    })
    .await;
    assert_eq!(counter.value(), 60, "increments are lost");
}

/// Two requests of one client exclude each other like those of two.
pub async fn two_guards_of_one_client_exclude_each_other(case: Case) {
    let (client, key) = (case.client().await, case.key());
    exclude(&case, &*client, &*client, &key).await;
}

/// Two clients exclude each other.
pub async fn two_clients_exclude_each_other(case: Case) {
    let (here, there, key) = (case.client().await, case.client().await, case.key());
    exclude(&case, &*here, &*there, &key).await;
}

async fn exclude(
    case: &Case,
    here: &dyn DistributedLock,
    there: &dyn DistributedLock,
    key: &LockKey,
) {
    let first = case.lock(here, key).await;
    let request = case.request(key).with_wait(Wait::Never);
    contended(there, &request).await;
    assert!(first.is_held());
    first.release().await.expect("a held lock is released");
    let second = granted(there, &request).await;
    assert!(here.acquire(&request).await.is_err(), "two hold the lock");
    second.release().await.expect("a held lock is released");
}

/// Locks on different keys are independent.
pub async fn different_keys_do_not_exclude_each_other(case: Case) {
    let client = case.client().await;
    let mut guards = Vec::new();
    for _ in 0..20 {
        let request = client.request(case.key()).ttl(case.ttl());
        let guard = request.try_acquire().await;
        guards.push(guard.expect("no error").expect("another key is in the way"));
    }
    assert!(guards.iter().all(polylock_core::LockGuard::is_held));
    release_all(guards).await;
}
