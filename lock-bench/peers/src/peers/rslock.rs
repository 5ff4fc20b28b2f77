use std::sync::Arc;
use std::time::Duration;

use polylock_bench::subject::{Failure, Subject};
use polylock_bench::target::Opened;
use rslock::{LockError, LockGuard, LockManager};

use super::{failed, poll};

pub(crate) async fn open(url: String) -> Result<Opened, Failure> {
    let locks = LockManager::new(vec![url]);
    // It connects when it is first used.
    let first = locks.lock("lock-bench-first", Duration::from_secs(1)).await;
    if let Ok(first) = first {
        first.release().await;
    }
    Ok(Opened::peer("rslock 0.10.0", Locks(locks)))
}

#[derive(Clone)]
struct Locks(LockManager);

impl Subject for Locks {
    type Key = (Arc<str>, Duration);
    type Held = LockGuard;

    fn key(&self, name: &str, ttl: Duration) -> Result<Self::Key, Failure> {
        Ok((format!("rslock:{name}").into(), ttl))
    }

    async fn acquire(
        &self,
        (key, ttl): &Self::Key,
        wait: Duration,
    ) -> Result<Option<LockGuard>, Failure> {
        // A future of it that is dropped leaves the key, so it is not bounded from outside.
        let attempt = || async {
            match self.0.lock(&**key, *ttl).await {
                Ok(lock) => Ok(Some(LockGuard { lock })),
                Err(LockError::Unavailable) => Ok(None),
                Err(error) => Err(failed(error)),
            }
        };
        poll(Duration::ZERO, wait, attempt).await
    }

    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        held.release().await;
        Ok(())
    }
}
