//! The cases hold no more locks at once than a client can.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_conformance::cases::{self, NewHarness};
use polylock_conformance::{Case, Harness};
use polylock_core::admin::LockAdmin;
use polylock_core::memory::Memory;
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, LockGuard, Result,
};

const MAX_LOCKS: usize = 7;

/// A store in which no more than [`MAX_LOCKS`] keys are held at once.
#[derive(Debug)]
struct Small(Memory);

#[async_trait]
impl DistributedLock for Small {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.0.capabilities();
        capabilities.max_locks = MAX_LOCKS;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        let is_full = self.0.live_keys() >= MAX_LOCKS;
        if is_full && self.0.inspect(request.key()).await?.is_none() {
            return Err(Error::new(ErrorKind::Unavailable, "the store is full"));
        }
        self.0.acquire(request).await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        self.0.admin()
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.0.shutdown(within).await
    }
}

#[async_trait]
impl Harness for Small {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        Arc::new(Self(self.0.client()))
    }
}

fn pass<F: Future<Output = ()>>(case: fn(Case) -> F) {
    let harness: NewHarness =
        Box::pin(async { Arc::new(Small(Memory::new())) as Arc<dyn Harness> });
    assert_eq!(cases::caught(harness, case), None);
}

#[test]
fn names_are_held_in_parts() {
    pass(cases::keys::hostile_names_do_not_share_a_lock);
    pass(cases::keys::names_that_look_alike_do_not_share_a_lock);
    pass(cases::keys::random_names_do_not_share_a_lock);
    pass(cases::keys::hostile_names_are_listed_exactly);
}

#[test]
fn no_more_locks_are_renewed_than_can_be_held() {
    pass(cases::lease::renewal_keeps_many_locks);
}
