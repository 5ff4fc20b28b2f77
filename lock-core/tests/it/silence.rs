//! What waiters are told of a server that falls silent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::admin::LockAdmin;
use lock_core::layers::LocalQueue;
use lock_core::memory::Memory;
use lock_core::{
    AcquireRequest, Capabilities, DistributedLock, ErrorKind, LockGuard, LockKey, Result, Wait,
};

#[tokio::test(start_paused = true)]
async fn whoever_waits_at_a_server_that_fell_silent_is_not_told_that_the_lock_is_held() {
    let silent = FallsSilent {
        like: Memory::new(),
        after: Duration::from_secs(5),
    };
    let locks = LocalQueue::new(Arc::new(silent));
    let (early, late, behind) = tokio::join!(
        refused(&locks, Duration::from_secs(4)),
        refused(&locks, Duration::from_secs(6)),
        refused(&locks, Duration::from_secs(7)),
    );
    assert_eq!(early, ErrorKind::Contended);
    assert_eq!(late, ErrorKind::Unavailable);
    assert_eq!(behind, ErrorKind::Unavailable, "it has inherited that");
}

async fn refused(locks: &LocalQueue, wait: Duration) -> ErrorKind {
    let key = LockKey::new("k").expect("a key");
    let request = AcquireRequest::new(key).with_wait(Wait::AtMost(wait));
    let refused = locks.acquire(&request).await;
    refused.expect_err("nothing is granted").kind()
}

/// Says that the lock is held, and later nothing more.
#[derive(Debug)]
struct FallsSilent {
    like: Memory,
    after: Duration,
}

#[async_trait]
impl DistributedLock for FallsSilent {
    fn capabilities(&self) -> Capabilities {
        self.like.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        request.mark_contended();
        tokio::time::sleep(self.after).await;
        request.mark_unresponsive();
        std::future::pending().await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, _: Duration) -> bool {
        true
    }
}
