//! SQLite keeps every promise.

use std::sync::Arc;

use crate::support::Place;
use async_trait::async_trait;
use lock_testkit::harness::{Harness, Look};
use lock_testkit::taker::Taker;
use polylock_core::{DistributedLock, LockKey};

lock_testkit::conformance!(
    harness = Place::new(),
    // Nothing comes between a process and its file; what a disk does is in `file.rs`.
    skip = [Duplicates, Fair, Faults],
);

#[async_trait]
impl Harness for Place {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        Arc::new(self.open().await)
    }

    fn taker(&self) -> Option<Taker> {
        Some(Taker::example(
            "lock-taker",
            format!("sqlite:{}", self.database().display()),
        ))
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        let held = "SELECT count(*) FROM polylock_locks \
                    WHERE key = ? AND slot < 2147483648 AND id IS NOT NULL";
        let held = sqlx::query_scalar::<_, i64>(held).bind(key.as_bytes());
        let held = held.fetch_one(&mut self.sql().await).await.ok()?;
        Some(Look::new(usize::try_from(held).ok()?, 0))
    }
}
