use std::time::Duration;

use polylock_bench::subject::{Failure, Subject};
use polylock_bench::target::Opened;
use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard, PgPool};
use tokio::time::timeout;

use super::failed;

pub(crate) async fn open(url: String) -> Result<Opened, Failure> {
    let pool = PgPool::connect(&url).await.map_err(failed)?;
    Ok(Opened::peer("sqlx 0.9.0, PgAdvisoryLock", Locks(pool)))
}

#[derive(Clone)]
struct Locks(PgPool);

type Guard = PgAdvisoryLockGuard<PoolConnection<Postgres>>;

impl Subject for Locks {
    type Key = PgAdvisoryLock;
    type Held = Guard;

    fn key(&self, name: &str, _: Duration) -> Result<PgAdvisoryLock, Failure> {
        Ok(PgAdvisoryLock::new(name))
    }

    async fn acquire(
        &self,
        key: &PgAdvisoryLock,
        wait: Duration,
    ) -> Result<Option<Guard>, Failure> {
        let acquire = async {
            let connection = self.0.acquire().await?;
            key.acquire(connection).await
        };
        // It says that it may be dropped; the connection comes back when the lock is free.
        match timeout(wait, acquire).await {
            Ok(taken) => taken.map(Some).map_err(failed),
            Err(_) => Ok(None),
        }
    }

    async fn release(&self, held: Guard) -> Result<(), Failure> {
        held.release_now().await.map(drop).map_err(failed)
    }
}
