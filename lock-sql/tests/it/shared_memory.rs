//! What happens when the files beside the database are replaced: other processes do not see ours any more.

use std::fs;
use std::time::Duration;

use crate::support::Place;
use lock_testkit::history::What;
use lock_testkit::locks::until;
use lock_testkit::taker::{Taker, TakerProcess};
use polylock_core::prelude::*;
use polylock_core::{LockGuard, LostReason};
use polylock_sql::Sqlite;
use sqlx::{Connection as _, Executor as _};

/// The lock of another process, which opens the files by their names.
async fn held_elsewhere(place: &Place) -> TakerProcess {
    let url = format!("sqlite:{}", place.database().display());
    let key = LockKey::new("elsewhere").expect("a key");
    let take = Taker::example("lock-taker", &url).take(&key);
    let holder = take.with_ttl(LONG).with_wait(SOON).spawn();
    let holder = holder.expect("it starts");
    let is_granted = |what: &What| matches!(what, What::Granted { .. });
    holder.told(SOON, is_granted).await;
    holder
}

async fn held(locks: &Sqlite) -> LockGuard {
    let held = locks.request("job").ttl(LONG).acquire().await;
    held.expect("it is free")
}

fn remove(place: &Place, name: &str) {
    fs::remove_file(place.file(name)).expect("it is there");
}

async fn assert_stolen(guard: &LockGuard) {
    let lost = tokio::time::timeout(SOON, guard.lost()).await;
    assert_eq!(lost.expect("the loss is signaled"), LostReason::Stolen);
}

/// Until all connections of this process to the old files are closed, there is an error.
async fn assert_excludes_again(locks: &Sqlite) {
    until("the files are opened again", async || {
        match locks.try_lock("elsewhere").await {
            Ok(granted) => {
                assert!(granted.is_none(), "two processes hold one lock");
                true
            }
            Err(error) => {
                assert!(error.message().contains("replaced"), "{error}");
                false
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_holder_learns_at_its_first_renewal_that_the_shared_memory_was_replaced() {
    let place = Place::new();
    let locks = place.open().await;
    let guard = held(&locks).await;
    remove(&place, "locks.db-shm");
    let mut elsewhere = held_elsewhere(&place).await;
    // The connection for renewals is opened here.
    let error = guard
        .renew()
        .await
        .expect_err("its row is in the old files");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_stolen(&guard).await;
    assert_excludes_again(&locks).await;
    elsewhere.kill().expect("it is there");
}

#[tokio::test]
async fn a_holder_learns_at_its_first_renewal_that_a_file_beside_the_database_is_gone() {
    for name in ["locks.db-wal", "locks.db-shm"] {
        let place = Place::new();
        let guard = held(&place.open().await).await;
        remove(&place, name);
        let error = guard.renew().await.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Lost, "{name}: {error}");
        assert_stolen(&guard).await;
    }
}

#[tokio::test]
async fn a_client_that_is_opened_later_does_not_go_on_with_replaced_files() {
    let place = Place::new();
    let first = place.open().await;
    let guard = held(&first).await;
    remove(&place, "locks.db-shm");
    let mut elsewhere = held_elsewhere(&place).await;
    let error = Sqlite::open(place.database()).await;
    let error = error.expect_err("the process has the old files open");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("replaced"), "{error}");
    assert_stolen(&guard).await;
    until("it opens the new files", async || {
        Sqlite::open(place.database()).await.is_ok()
    })
    .await;
    assert_excludes_again(&place.open().await).await;
    assert_excludes_again(&first).await;
    elsewhere.kill().expect("it is there");
}

#[tokio::test]
async fn an_idle_connection_for_renewals_does_not_keep_replaced_files_in_use() {
    let place = Place::new();
    let locks = place.open().await;
    let guard = held(&locks).await;
    guard.renew().await.expect("it is held");
    remove(&place, "locks.db-shm");
    let mut elsewhere = held_elsewhere(&place).await;
    locks.try_lock("new").await.expect_err("the file is gone");
    assert_stolen(&guard).await;
    assert_excludes_again(&locks).await;
    elsewhere.kill().expect("it is there");
}

/// SQLite opens the files once for all connections of a process.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_connection_of_the_application_to_replaced_files_keeps_locks_out_of_them() {
    let place = Place::new();
    drop(place.open().await);
    let mut application = place.sql().await;
    let read = "SELECT count(*) FROM polylock_locks";
    application.execute(read).await.expect("the table is there");
    remove(&place, "locks.db-shm");
    let mut elsewhere = held_elsewhere(&place).await;
    for _ in 0..3 {
        let error = Sqlite::open(place.database()).await;
        let error = error.expect_err("the process has the old files open");
        assert!(error.message().contains("replaced"), "{error}");
    }
    application.close().await.expect("it is open");
    until("it opens the new files", async || {
        Sqlite::open(place.database()).await.is_ok()
    })
    .await;
    assert_excludes_again(&place.open().await).await;
    elsewhere.kill().expect("it is there");
}

const LONG: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_file_that_is_opened_by_two_paths_is_one() {
    let place = Place::new();
    let link = place.file("link.db");
    let locks = place.open().await;
    std::os::unix::fs::symlink(place.database(), &link).expect("a link");
    let guard = held(&locks).await;
    let other = Sqlite::open(&link).await.expect("it is the same file");
    guard.renew().await.expect("it is held");
    assert!(other.try_lock("job").await.expect("an answer").is_none());
    guard.release().await.expect("it is released");
    let guard = held(&other).await;
    assert!(locks.try_lock("job").await.expect("an answer").is_none());
    guard.renew().await.expect("it is held");
}
