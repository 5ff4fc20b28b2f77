use std::sync::Arc;
use std::time::Duration;

use polylock::{AcquireRequest, DistributedLock, ErrorKind, LockGuard, LockKey, Released, Wait};

use super::failure::{LOST, LOST_BEFORE};
use super::{Failure, Subject};

/// Locks of this project, as a user calls them.
#[derive(Clone, Debug)]
pub(crate) struct Locks(pub(crate) Arc<dyn DistributedLock>);

impl Subject for Locks {
    type Key = LockKey;
    type Held = LockGuard;

    fn key(&self, name: &str) -> Result<LockKey, Failure> {
        Ok(LockKey::new(name)?)
    }

    async fn acquire(
        &self,
        key: &LockKey,
        ttl: Duration,
        wait: Option<Duration>,
    ) -> Result<Option<LockGuard>, Failure> {
        let request = AcquireRequest::new(key.clone())
            .with_ttl(ttl)
            .with_wait(wait.map_or(Wait::Forever, Wait::AtMost));
        match self.0.acquire(&request).await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn token(held: &LockGuard) -> Option<u64> {
        held.fencing_token().map(u64::from)
    }

    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        // Who believes that it holds when it calls release did so until then, whatever the answer;
        // the signal tells afterwards, so that no release needs to look at the clock first.
        let lost = held.lost();
        match held.release().await {
            Ok(Released::AlreadyLost) if lost.reason().is_some() => Err(Failure::new(
                LOST_BEFORE,
                "the lock was lost, and its holder told",
            )),
            Ok(Released::AlreadyLost) => Err(Failure::new(LOST, "the server knew another holder")),
            Ok(_) => Ok(()),
            Err(error) if lost.reason().is_some() => Err(Failure::of(LOST_BEFORE, &error)),
            Err(error) => Err(error.into()),
        }
    }
}
