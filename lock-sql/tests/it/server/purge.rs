//! The rows of keys that are used once do not fill the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use polylock_core::{DistributedLock as _, ErrorKind, Mode, Wait};
use polylock_sql::SqlLock;
use tokio::task::JoinSet;

use crate::server::support::{Kind, SOON, Site, ms, on, request, take, take_and_release, until};

/// Ten thousand keys, each locked once. An hour and a minute pass between the batches.
async fn keys_that_are_locked_once_leave_a_bounded_table(site: Site) {
    let site = site.with_connections(8);
    let locks = site.open().await;
    let held = take(&locks, "held").await;
    let mut most = 0;
    for batch in 0..BATCHES {
        lock_each(&locks, batch, IN_BATCH).await;
        most = most.max(rows(&site).await);
        site.sql(format!(
            "UPDATE {} SET changed_at = changed_at - 3660000000 WHERE kind = 2 AND lock_key > {}",
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

async fn lock_each(locks: &SqlLock, batch: u64, keys: u64) {
    let tasks = (0..TASKS).map(async |task| {
        for n in 0..keys / TASKS {
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

/// Clients that lock one new key each, as a job does whose keys have dates, and one that keeps its lock.
async fn clients_that_lock_one_key_each_leave_a_bounded_table(site: Site) {
    let site = site.with("retention=0s");
    let locks = site.open().await;
    let held = take(&locks, "held").await;
    let mut jobs = 0;
    while jobs == 0 || leases(&site).await > jobs / 2 {
        assert!(jobs < 400, "{} rows", leases(&site).await);
        let clients = (jobs..jobs + IN_ROUND).map(async |n| {
            let locks = site.open().await;
            take_and_release(&locks, &format!("job/{n:04}")).await;
            assert!(locks.shutdown(SOON).await, "it is idle");
        });
        join_all(clients).await;
        end_period(&site).await;
        jobs += IN_ROUND;
    }
    assert!(held.is_held());
    held.release().await.expect("it is released");
}

on!(clients_that_lock_one_key_each_leave_a_bounded_table: postgres_lease, mariadb_lease);

/// Of them, only the first ones fit into a round.
async fn one_client_deletes_all_idle_leases(site: Site) {
    let site = site.with("retention=0s").with_connections(8);
    let locks = site.open().await;
    let held = take(&locks, "held").await;
    let (digits, key) = ("(SELECT 0 AS n", "concat('idle/', a.n, b.n, c.n, d.n, e.n)");
    let digits = (1..10).fold(digits.to_owned(), |all, n| {
        format!("{all} UNION ALL SELECT {n}")
    });
    let key = match site.kind() {
        Kind::MariaDb => key.to_owned(),
        Kind::Postgres => format!("convert_to({key}, 'UTF8')"),
    };
    site.sql(format!(
        "INSERT INTO {} (kind, lock_key, last_token, changed_at, version)
         SELECT 1, {key}, 64, 1, 1
         FROM {digits}) a, {digits}) b, {digits}) c, {digits}) d, {digits}) e WHERE a.n < 2",
        site.table
    ))
    .await;
    assert_eq!(leases(&site).await, 20_001);
    let mut batch = 0;
    while leases(&site).await > IN_BATCH {
        lock_each(&locks, batch, 100).await;
        end_period(&site).await;
        batch += 1;
        assert!(batch < 60, "{} rows are left", leases(&site).await);
    }
    assert!(held.is_held());
    held.release().await.expect("it is released");
}

on!(one_client_deletes_all_idle_leases: postgres_lease, mariadb_lease);

async fn leases(site: &Site) -> u64 {
    let rows = format!("SELECT count(*) FROM {} WHERE kind = 1", site.table);
    site.number(rows).await
}

/// In place of the half minute after which the next period begins, of those that a deletion waits for.
async fn end_period(site: &Site) {
    let back = format!("UPDATE {} SET acquired_at = 1 WHERE kind = 0", site.table);
    site.sql(back).await;
}

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
/// As many rows as are added from one round to the next.
const IN_ROUND: u64 = 8;
