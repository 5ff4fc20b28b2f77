use std::sync::Arc;
use std::time::Duration;

use polylock_bench::subject::{Failure, Subject};
use polylock_bench::target::Opened;
use rslock::{LockError, LockGuard, LockManager};

use super::{Peer, failed, opened, poll};

pub(crate) const PEER: Peer = Peer {
    scheme: "rslock+redis",
    open: |url| Box::pin(open(url)),
};

async fn open(url: String) -> Result<Opened, Failure> {
    let locks = LockManager::new(vec![url]);
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

    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        held.release().await;
        Ok(())
    }
}
