//! The rows of keys that are used once do not fill the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use polylock_core::{DistributedLock as _, ErrorKind, Mode, Wait};
use polylock_sql::SqlLock;
use tokio::task::JoinSet;

use crate::server::support::{Kind, Site, ms, on, request, take, take_and_release, until};

/// Ten thousand keys, each locked once. Their rows grow old between the batches.
async fn keys_that_are_locked_once_leave_a_bounded_table(site: Site) {
    let site = site.with_connections(8);
    let locks = site.open().await;
    let held = take(&locks, "held").await;
    let mut most = 0;
    for batch in 0..BATCHES {
        lock_each(&locks, batch).await;
        most = most.max(rows(&site).await);
        site.sql(format!(
            "UPDATE {} SET changed_at = 1 WHERE kind = 2 AND lock_key > {}",
            site.table,
            site.bytes(b"held")
        ))
        .await;
    }
    assert!(most < 2 * IN_BATCH, "{most} rows");
    assert!(held.is_held());
    held.release().await.expect("it is released");
    take_and_release(&locks, "job/0/0").await;
}

async fn lock_each(locks: &SqlLock, batch: u64) {
    let tasks = (0..TASKS).map(async |task| {
        for n in 0..IN_BATCH / TASKS {
            take_and_release(locks, &format!("job/{batch}/{}", n * TASKS + task)).await;
        }
    });
    join_all(tasks).await;
}

async fn rows(site: &Site) -> u64 {
    let rows = format!("SELECT count(*) FROM {} WHERE kind = 2", site.table);
    site.number(rows).await
}

on!(keys_that_are_locked_once_leave_a_bounded_table: postgres_row, mariadb_row);

/// Waiters are in line for the row of a key when its deletion is committed.
async fn waiters_outlast_the_deletion_of_their_row(site: Site) {
    let locks = Arc::new(site.open().await);
    take_and_release(&locks, "job").await;
    let deleting = tokio::spawn(delete_slowly(site.clone()));
    until("the row is locked", async || {
        let one = request("job").with_wait(Wait::Never);
        match locks.acquire(&one).await {
            Ok(guard) => {
                guard.release().await.expect("it is released");
                false
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
                true
            }
        }
    })
    .await;
    let is_taken = Arc::new(AtomicBool::new(false));
    let mut waiting = JoinSet::new();
    for _ in 0..6 {
        let (site, is_taken) = (site.clone(), Arc::clone(&is_taken));
        waiting.spawn(async move {
            let guard = take(&site.open().await, "job").await;
            assert!(!is_taken.swap(true, Ordering::SeqCst), "two holders");
            tokio::time::sleep(ms(50)).await;
            is_taken.store(false, Ordering::SeqCst);
            guard.release().await.expect("it is released");
        });
    }
    let reading = tokio::spawn({
        let locks = Arc::clone(&locks);
        let shared = request("job").with_mode(Mode::Shared);
        async move { locks.acquire(&shared).await.map(drop) }
    });
    until("they wait", async || site.waiters().await > 6).await;
    assert!(!deleting.is_finished(), "it is committed already");
    waiting.join_all().await;
    reading.await.expect("no panic").expect("it is granted");
    deleting.await.expect("no panic");
    assert_eq!(rows(&site).await, 1);
}

/// As a purge does whose commit takes long. Without the slot, MariaDB would lock the gap beside the row
/// as well, and new sessions could not write their rows there.
async fn delete_slowly(site: Site) {
    let sleep = match site.kind() {
        Kind::MariaDb => "SLEEP(5)",
        Kind::Postgres => "pg_sleep(5)",
    };
    let key = site.bytes(b"job");
    site.sql(format!(
        "BEGIN; DELETE FROM {} WHERE kind = 2 AND lock_key = {key} AND slot = 0;
         SELECT {sleep}; COMMIT",
        site.table
    ))
    .await;
}

on!(waiters_outlast_the_deletion_of_their_row: postgres_row, mariadb_row);

const BATCHES: u64 = 10;
const IN_BATCH: u64 = 1_000;
const TASKS: u64 = 4;
