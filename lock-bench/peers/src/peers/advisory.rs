use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_bench::subject::{Failure, Subject};
use lock_bench::target::{Opened, Opener, Probe};
use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard, PgPool};
use tokio::time::timeout;

use super::{failed, inner, opened, probe, shown};

#[derive(Debug)]
pub(crate) struct Advisory;

#[async_trait]
impl Opener for Advisory {
    fn schemes(&self) -> Vec<&'static str> {
        vec!["sqlx-advisory+postgres"]
    }

    async fn open(&self, url: &str) -> Result<Opened, Failure> {
        let inner = inner(url)?;
        let pool = PgPool::connect(inner).await.map_err(failed)?;
        Ok(opened("sqlx 0.9.0, PgAdvisoryLock", Locks(pool)))
    }

    async fn probe(&self, url: &str) -> Result<Option<Arc<dyn Probe>>, Failure> {
        probe(url).await
    }

    fn shown(&self, url: &str) -> String {
        shown(url)
    }
}

#[derive(Clone)]
struct Locks(PgPool);

type Guard = PgAdvisoryLockGuard<PoolConnection<Postgres>>;

impl Subject for Locks {
    type Key = PgAdvisoryLock;
    type Held = Guard;

    fn key(&self, name: &str) -> Result<PgAdvisoryLock, Failure> {
        Ok(PgAdvisoryLock::new(name))
    }

    async fn acquire(
        &self,
        key: &PgAdvisoryLock,
        _: Duration,
        wait: Option<Duration>,
    ) -> Result<Option<Guard>, Failure> {
        let acquire = async {
            let connection = self.0.acquire().await?;
            key.acquire(connection).await
        };
        match wait {
            None => acquire.await.map(Some).map_err(failed),
            Some(Duration::ZERO) => {
                let connection = self.0.acquire().await.map_err(failed)?;
                let taken = key.try_acquire(connection).await.map_err(failed)?;
                Ok(taken.left())
            }
            // It says that it may be dropped; the connection comes back when the lock is free.
            Some(wait) => match timeout(wait, acquire).await {
                Ok(taken) => taken.map(Some).map_err(failed),
                Err(_) => Ok(None),
            },
        }
    }

    fn token(_: &Guard) -> Option<u64> {
        None
    }

    async fn release(&self, held: Guard) -> Result<(), Failure> {
        held.release_now().await.map(drop).map_err(failed)
    }
}
