use std::num::NonZeroU32;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polylock_core::engine::{LeaseId, OsEntropy};
use polylock_core::layers::LocalQueue;
use polylock_core::{
    AcquireRequest, DistributedLock, DistributedLockExt, ErrorKind, LockGuard, LockKey, Mode,
    Renewal, Result, Wait,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::support::{eventually, granted};
use crate::{Faults, Harness, Look};

/// The context of a case: a harness and keys of its own.
#[derive(Clone, Debug)]
pub struct Case {
    harness: Arc<dyn Harness>,
    prefix: String,
    keys: Arc<AtomicU64>,
}

/// Enough time for a few requests on a very busy machine.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// How late such a machine may notice that a time is over.
pub(super) const LATE: Duration = Duration::from_secs(4);

impl Case {
    /// A case on `harness`, with keys that begin with random characters.
    #[must_use]
    pub fn new(harness: Arc<dyn Harness>) -> Self {
        let prefix = LeaseId::random(&OsEntropy::default()).to_hex();
        Self {
            harness,
            prefix: prefix[..12].to_owned(),
            keys: Arc::default(),
        }
    }

    /// The harness.
    #[must_use]
    pub fn harness(&self) -> &dyn Harness {
        &*self.harness
    }

    /// Another client.
    pub(super) async fn client(&self) -> Arc<dyn DistributedLock> {
        self.harness.client().await
    }

    /// Another client with a queue of its own, as a service has.
    pub(super) async fn queue(&self) -> Arc<LocalQueue> {
        Arc::new(LocalQueue::new(self.client().await))
    }

    /// A key that no other case and no other call has.
    pub(super) fn key(&self) -> LockKey {
        let number = self.keys.fetch_add(1, Ordering::Relaxed);
        self.named(&format!("key-{number}"))
    }

    /// A key that no other case has.
    pub(super) fn named(&self, name: &str) -> LockKey {
        LockKey::new(format!("{}/{name}", self.prefix)).expect("the names of a case are keys")
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The shortest ttl of the backend.
    pub(super) fn ttl(&self) -> Duration {
        self.harness.shortest_ttl()
    }

    /// Time until a waiter gets the lock of a dead holder.
    pub(super) fn after_death(&self) -> Duration {
        self.ttl() + SOON
    }

    pub(super) fn faults(&self) -> &dyn Faults {
        self.harness.faults().expect("the case needs faults")
    }

    /// Asserts that all planned faults have happened, once requests under way have had time to arrive.
    #[track_caller]
    pub(super) fn assert_disturbed(&self) -> impl Future<Output = ()> {
        let place = Location::caller();
        async move {
            let deadline = Instant::now() + LATE;
            while self.faults().pending().is_some_and(|pending| pending > 0) {
                let in_time = Instant::now() < deadline;
                assert!(in_time, "the fault before {place} did not happen");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    pub(super) async fn look(&self, key: &LockKey) -> Look {
        self.harness.look(key).await.expect("the case needs a look")
    }

    /// An exclusive request with the shortest ttl that waits for as long as a case may.
    pub(super) fn request(&self, key: &LockKey) -> AcquireRequest {
        AcquireRequest::new(key.clone()).with_ttl(self.ttl())
    }

    /// The same that waits for no longer than this.
    pub(super) fn request_within(&self, key: &LockKey, limit: Duration) -> AcquireRequest {
        self.request(key).with_wait(Wait::AtMost(limit))
    }

    /// The same that waits until the lock of a dead holder is free.
    pub(super) fn patient(&self, key: &LockKey) -> AcquireRequest {
        self.request_within(key, self.after_death())
    }

    /// The same for a lease without renewals.
    pub(super) fn unrenewed(&self, key: &LockKey) -> AcquireRequest {
        self.request(key).with_renewal(Renewal::Manual)
    }

    /// Acquires a lock that is free.
    pub(super) async fn lock(&self, locks: &dyn DistributedLock, key: &LockKey) -> LockGuard {
        granted(locks, &self.request_within(key, SOON)).await
    }

    /// The same with a lease without renewals.
    pub(super) async fn lease(&self, locks: &dyn DistributedLock, key: &LockKey) -> LockGuard {
        granted(locks, &self.unrenewed(key)).await
    }

    /// Starts a request of another client, and returns when it waits.
    pub(super) async fn waiting(&self, request: &AcquireRequest) -> JoinHandle<Result<LockGuard>> {
        let (client, request) = (self.client().await, request.clone());
        let key = request.key().clone();
        let waiting = tokio::spawn(async move { client.acquire(&request).await });
        self.queued(&key, 1).await;
        waiting
    }

    /// Waits until the store has this many waiters or, if that cannot be seen, until it should.
    pub(super) async fn queued(&self, key: &LockKey, waiters: usize) {
        let seen =
            self.harness.look(key).await.is_some() && self.client().await.capabilities().fair;
        if seen {
            let what = format!("{waiters} wait");
            eventually(&what, || async { self.look(key).await.waiters >= waiters }).await;
        } else {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Asserts that another client gets the lock with one attempt.
    pub(super) async fn assert_free(&self, key: &LockKey) {
        let client = self.client().await;
        let attempt = client.request(key).ttl(self.ttl()).try_acquire().await;
        let guard = attempt.expect("contention is no error");
        let guard = guard.expect("the lock is not free");
        guard.release().await.expect("a held lock is released");
        // With several servers, the last ones may get the release after the reply.
        assert!(client.shutdown(SOON).await, "background work does not end");
    }

    /// Asserts that another client does not get the lock.
    #[track_caller]
    pub(super) fn assert_taken(&self, key: &LockKey) -> impl Future<Output = ()> {
        let place = Location::caller();
        async move {
            let client = self.client().await;
            let attempt = client.request(key).ttl(self.ttl()).try_acquire().await;
            let guard = attempt.expect("contention is no error");
            assert!(
                guard.is_none(),
                "another client got the lock at {place}: {guard:?}"
            );
        }
    }

    /// Asserts that a lock is held, and that another client does not get it.
    #[track_caller]
    pub(super) fn assert_kept(&self, guard: &LockGuard) -> impl Future<Output = ()> {
        assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
        self.assert_taken(guard.key())
    }

    /// Asserts that another client gets the lock within a time.
    pub(super) async fn assert_free_within(&self, key: &LockKey, within: Duration) {
        let client = self.client().await;
        let granted = client.acquire(&self.request_within(key, within)).await;
        let guard = granted.expect("the lock does not become free");
        guard.release().await.expect("a held lock is released");
    }

    /// Waits for what `locks` does in the background, and asserts that the lock is free then.
    pub(super) async fn assert_nothing_left(&self, locks: &dyn DistributedLock, key: &LockKey) {
        assert!(locks.shutdown(SOON).await, "background work does not end");
        if let Some(look) = self.harness.look(key).await {
            assert_eq!(look, Look::default(), "the store has something left");
        }
        self.assert_free(key).await;
    }

    /// Asserts that a mode is refused before anything is sent.
    pub(super) async fn assert_refused(&self, locks: &dyn DistributedLock, mode: Mode) {
        let key = self.key();
        let request = self.request(&key).with_mode(mode);
        let answer = locks.acquire(&request).await;
        let error = answer.expect_err("the mode is served");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        self.assert_free(&key).await;
    }
}

pub(super) fn two() -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(1)
}
