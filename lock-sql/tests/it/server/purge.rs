//! The rows of keys that are used once do not fill the table.

use std::sync::Arc;

use polylock_sql::SqlLock;

use crate::server::support::{Site, on, take, take_and_release};

/// Ten thousand keys, each locked once. Their rows grow old between the batches.
async fn keys_that_are_locked_once_leave_a_bounded_table(site: Site) {
    let site = site.with_connections(8);
    let locks = Arc::new(site.open().await);
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

async fn lock_each(locks: &Arc<SqlLock>, batch: u64) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let locks = Arc::clone(locks);
            tokio::spawn(async move {
                for n in 0..IN_BATCH / TASKS {
                    take_and_release(&locks, &format!("job/{batch}/{}", n * TASKS + task)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

async fn rows(site: &Site) -> u64 {
    let rows = format!("SELECT count(*) FROM {} WHERE kind = 2", site.table);
    site.number(rows).await
}

on!(keys_that_are_locked_once_leave_a_bounded_table: postgres_row, mariadb_row);

const BATCHES: u64 = 10;
const IN_BATCH: u64 = 1_000;
const TASKS: u64 = 4;
