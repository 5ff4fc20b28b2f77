use std::sync::Arc;
use std::time::Duration;

use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_postgres::PostgresLockProvider;
use distributed_lock_postgres::handle::PostgresLockHandle;
use distributed_lock_postgres::lock::PostgresDistributedLock;
use polylock_bench::subject::{Failure, Subject};
use polylock_bench::target::Opened;

use super::failed;

pub(crate) async fn open(url: String) -> Result<Opened, Failure> {
    let provider = PostgresLockProvider::new(&url).await.map_err(failed)?;
    let subject = Locks(Arc::new(provider));
    Ok(Opened::peer("distributed-lock-postgres 0.2.0", subject))
}

#[derive(Clone)]
struct Locks(Arc<PostgresLockProvider>);

impl Subject for Locks {
    type Key = Arc<PostgresDistributedLock>;
    type Held = PostgresLockHandle;

    fn key(&self, name: &str, _: Duration) -> Result<Self::Key, Failure> {
        Ok(Arc::new(self.0.create_lock(name)))
    }

    async fn acquire(
        &self,
        key: &Self::Key,
        wait: Duration,
    ) -> Result<Option<Self::Held>, Failure> {
        // Less than a millisecond is without end there.
        let wait = wait.max(Duration::from_millis(1));
        match key.acquire(Some(wait)).await {
            Ok(held) => Ok(Some(held)),
            Err(LockError::Timeout(_)) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn release(&self, held: PostgresLockHandle) -> Result<(), Failure> {
        held.release().await.map_err(failed)
    }
}
