use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_bench::subject::{Failure, Subject};
use lock_bench::target::{Opened, Opener, Probe};
use rslock::{LockError, LockGuard, LockManager};

use super::{failed, inner, opened, poll, probe, shown};

#[derive(Debug)]
pub(crate) struct Rslock;

#[async_trait]
impl Opener for Rslock {
    fn schemes(&self) -> Vec<&'static str> {
        vec!["rslock+redis"]
    }

    async fn open(&self, url: &str) -> Result<Opened, Failure> {
        let inner = inner(url)?;
        let locks = LockManager::new(vec![inner]);
        // It connects when it is first used.
        let first = locks.lock("lock-bench-first", Duration::from_secs(1)).await;
        if let Ok(first) = first {
            first.release().await;
        }
        // One attempt, where nobody is to wait.
        let mut once = locks.clone();
        once.set_retry(1, Duration::from_millis(200));
        Ok(opened("rslock 0.10.0", Subjects { locks, once }))
    }

    async fn probe(&self, url: &str) -> Result<Option<Arc<dyn Probe>>, Failure> {
        probe(url).await
    }

    fn shown(&self, url: &str) -> String {
        shown(url)
    }
}

#[derive(Clone)]
struct Subjects {
    locks: LockManager,
    once: LockManager,
}

impl Subject for Subjects {
    type Key = Arc<str>;
    type Held = LockGuard;

    fn key(&self, name: &str) -> Result<Arc<str>, Failure> {
        Ok(format!("rslock:{name}").into())
    }

    async fn acquire(
        &self,
        key: &Arc<str>,
        ttl: Duration,
        wait: Option<Duration>,
    ) -> Result<Option<LockGuard>, Failure> {
        let Some(wait) = wait else {
            return self
                .locks
                .acquire(&**key, ttl)
                .await
                .map(Some)
                .map_err(failed);
        };
        // A future of it that is dropped leaves the key, so it is not bounded from outside.
        let locks = if wait.is_zero() {
            &self.once
        } else {
            &self.locks
        };
        let attempt = || async {
            match locks.lock(&**key, ttl).await {
                Ok(lock) => Ok(Some(LockGuard { lock })),
                Err(LockError::Unavailable) => Ok(None),
                Err(error) => Err(failed(error)),
            }
        };
        poll(Duration::ZERO, Some(wait), attempt).await
    }

    fn token(_: &LockGuard) -> Option<u64> {
        None
    }

    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        held.release().await;
        Ok(())
    }
}
