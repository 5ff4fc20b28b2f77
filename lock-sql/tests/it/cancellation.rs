//! Every future dropped at every await point, and at any time.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Place;
use lock_testkit::polled;
use polylock_core::layers::LocalQueue;
use polylock_core::prelude::*;
use polylock_sql::{Sqlite, SqliteConfig};
use sqlx::Executor as _;

/// Asserts that no lock is held, no request is under way, and the database is not locked.
async fn assert_clean(place: &Place, locks: &Sqlite, polls: usize) {
    assert!(
        locks.shutdown(Duration::from_secs(10)).await,
        "{polls}: still busy"
    );
    let held = locks.admin().unwrap().list("").await.unwrap();
    assert!(held.is_empty(), "{polls}: {held:?}");
    let mut sql = place.sql().await;
    sql.execute("PRAGMA busy_timeout = 0").await.unwrap();
    sql.execute("BEGIN IMMEDIATE").await.unwrap();
    sql.execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn what_is_dropped_leaves_no_transaction() {
    let place = Place::new();
    let (locks, other) = (place.open().await, place.open().await);
    let admin = locks.admin().unwrap();
    let key = LockKey::new("job").unwrap();
    for polls in 1..=16 {
        polled(polls, locks.lock("free")).await;
        polled(polls, locks.request("shared").shared().acquire()).await;
        polled(polls, locks.lock_all(["b", "a", "c"])).await;
        let mut guard = locks.lock("job").await.unwrap();
        assert!(polled(polls, other.lock("job")).await.is_none());
        polled(polls, guard.renew()).await;
        polled(polls, guard.downgrade()).await;
        polled(polls, admin.list("")).await;
        polled(polls, admin.inspect(&key)).await;
        polled(polls, admin.watch("")).await;
        assert!(guard.is_held(), "after {polls} polls");
        polled(polls, guard.release()).await;
        let broken = locks.lock("broken").await.unwrap();
        let break_it = LockKey::new("broken").unwrap();
        polled(polls, admin.break_lock(&break_it, "test")).await;
        drop(broken);
        assert!(other.shutdown(Duration::from_secs(10)).await);
        assert_clean(&place, &locks, polls).await;
    }
}

#[tokio::test]
async fn a_connection_under_way_leaves_no_transaction() {
    let place = Place::new();
    for polls in 1..20 {
        polled(polls, Sqlite::connect(SqliteConfig::new(place.database()))).await;
    }
    let locks = place.open().await;
    locks.lock("job").await.unwrap().release().await.unwrap();
    assert_clean(&place, &locks, 0).await;
}

#[test]
fn a_blocked_runtime_keeps_no_other_process_from_writing() {
    let place = Place::new();
    let (blocked, other) = (runtime(), runtime());
    let locks = blocked.block_on(place.open());
    let guard = blocked
        .block_on(locks.request("held").ttl(Duration::from_secs(2)).acquire())
        .unwrap();
    for polls in 1..3 {
        // From here on the acquisition is not polled.
        let mut acquire = Box::pin(locks.lock("job"));
        blocked.block_on(async { polled(polls, acquire.as_mut()).await });
        std::thread::sleep(Duration::from_millis(2200));
        other.block_on(async {
            let theirs = place.open().await;
            let another = theirs.try_lock("another").await.unwrap();
            another.unwrap().release().await.unwrap();
        });
        assert!(guard.is_held(), "its renewals need no runtime of ours");
        drop(acquire);
    }
    blocked.block_on(guard.release()).unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn a_wait_is_taken_over_by_a_task_of_another_runtime() {
    let place = Place::new();
    let (gone, here) = (runtime(), runtime());
    let other = here.block_on(place.open());
    let held = here.block_on(other.lock("job")).unwrap();
    let queue = LocalQueue::new(Arc::new(gone.block_on(place.open())));
    for _ in 0..50 {
        let (mut first, mut second) = (Box::pin(queue.lock("job")), Box::pin(queue.lock("job")));
        let gone = runtime();
        // The first contends and the second is behind it.
        gone.block_on(async {
            assert!(polled(3, first.as_mut()).await.is_none());
        });
        here.block_on(async {
            assert!(polled(1, second.as_mut()).await.is_none());
        });
        drop(first);
        drop(gone);
        here.block_on(async {
            assert!(polled(5, second.as_mut()).await.is_none());
        });
    }
    let waiter = queue.lock("job");
    let served = here.block_on(async {
        let mut waiter = pin!(waiter);
        assert!(polled(1, waiter.as_mut()).await.is_none());
        held.release().await.unwrap();
        waiter.await.unwrap().release().await
    });
    assert_eq!(served.unwrap(), Released::Clean);
}
