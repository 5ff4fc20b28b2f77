//! Undoing acquisitions whose outcome nobody knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::engine::Engine;
use lock_core::prelude::*;
use lock_core::{FencingToken, Lease, LeaseControl, PendingRelease, Result, Upkeep};

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
    let lease = Arc::new(Mute {
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
    failures: usize,
    releases: AtomicUsize,
}

impl Mute {
    fn releases(&self) -> usize {
        self.releases.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Lease for Mute {
    fn upkeep(&self) -> Upkeep {
        Upkeep::Reported
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
