//! Undoing acquisitions whose outcome nobody knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::engine::{Engine, LeaseId};
use lock_core::prelude::*;
use lock_core::{
    FencingToken, Lease, LeaseControl, LeaseState, Liveness, PendingRelease, RenewalRequest,
    Renewer, Result,
};

const TTL: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn an_armed_release_is_repeated_until_there_is_an_answer() {
    let (lease, pending) = armed(3);
    drop(pending);
    tokio::time::sleep(TTL).await;
    assert_eq!(lease.releases(), 4, "three without an answer and one with");
}

#[tokio::test(start_paused = true)]
async fn an_armed_release_ends_with_the_lease() {
    let (lease, pending) = armed(usize::MAX);
    drop(pending);
    tokio::time::sleep(TTL * 2).await;
    let after_a_ttl = lease.releases();
    tokio::time::sleep(TTL * 10).await;
    assert_eq!(lease.releases(), after_a_ttl);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_lease_is_released_for_as_long_as_it_takes() {
    let (lease, pending) = armed_with(Liveness::Reported, 250);
    drop(pending);
    tokio::time::sleep(TTL * 10).await;
    let tries = lease.releases();
    assert!((10..100).contains(&tries), "with pauses: {tries}");
    tokio::time::sleep(TTL * 1_000).await;
    assert_eq!(lease.releases(), 251);
}

#[tokio::test(start_paused = true)]
async fn a_disarmed_release_sends_nothing() {
    let (lease, pending) = armed(0);
    pending.disarm();
    tokio::time::sleep(TTL).await;
    assert_eq!(lease.releases(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_was_answered_is_done_when_it_returns() {
    let (lease, pending) = armed(0);
    pending.undo().await;
    assert_eq!(lease.releases(), 1);
    tokio::time::sleep(TTL).await;
    assert_eq!(lease.releases(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_undo_without_an_answer_goes_on_in_the_background() {
    let (lease, pending) = armed(1);
    pending.undo().await;
    tokio::time::sleep(TTL).await;
    assert_eq!(lease.releases(), 2);
}

fn armed(failures: usize) -> (Arc<Mute>, PendingRelease) {
    let id = LeaseId::from_bytes([1; 16]);
    let renewer = Arc::new(Unused) as Arc<dyn Renewer>;
    armed_with(Liveness::Renewed { id, renewer }, failures)
}

fn armed_with(liveness: Liveness, failures: usize) -> (Arc<Mute>, PendingRelease) {
    let lease = Arc::new(Mute {
        liveness,
        failures,
        releases: AtomicUsize::new(0),
    });
    let engine = Engine::on_current_runtime("mute");
    let key = LockKey::new("k").expect("is a key");
    let pending = engine.pending(&key, Arc::clone(&lease) as _, TTL);
    (lease, pending)
}

/// A lease whose first releases get no answer.
#[derive(Debug)]
struct Mute {
    liveness: Liveness,
    failures: usize,
    releases: AtomicUsize,
}

impl Mute {
    fn releases(&self) -> usize {
        self.releases.load(Ordering::SeqCst)
    }
}

/// What is not granted is not renewed.
#[derive(Debug)]
struct Unused;

#[async_trait]
impl Renewer for Unused {
    async fn renew(&self, _: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        Vec::new()
    }
}

#[async_trait]
impl Lease for Mute {
    fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    fn attach(&self, _: LeaseControl) {}

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        Ok(None)
    }

    async fn downgrade(&self) -> Result<()> {
        Ok(())
    }

    async fn release(&self) -> Result<Released> {
        if self.releases.fetch_add(1, Ordering::SeqCst) < self.failures {
            return Err(Error::new(ErrorKind::Unavailable, "no answer").with_unknown_outcome());
        }
        Ok(Released::Clean)
    }
}
