//! The tokens of locks on two backends whose clocks differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::admin::LockAdmin;
use lock_core::engine::Engine;
use lock_core::layers::{LocalQueue, Migrate};
use lock_core::prelude::*;
use lock_core::{
    AcquireRequest, Capabilities, Fencing, FencingToken, Grant, Lease, LeaseControl, Liveness,
    Result,
};
use tokio::time::Instant;

use super::support::millis;

/// A server that draws its tokens from a clock, and tells of a grant after a time.
#[derive(Debug)]
struct Clocked {
    engine: Engine,
    began: Instant,
    /// By how much its clock is ahead, in microseconds.
    ahead: u64,
    tells_after: Duration,
    held: Arc<AtomicU64>,
}

impl Clocked {
    fn new(ahead: Duration, tells_after: Duration) -> Self {
        Self {
            engine: Engine::on_current_runtime("clocked"),
            began: Instant::now(),
            ahead: u64::try_from(ahead.as_micros()).expect("is short"),
            tells_after,
            held: Arc::default(),
        }
    }

    fn draw(&self) -> u64 {
        let micros = u64::try_from(self.began.elapsed().as_micros()).expect("is short");
        1_000_000 + self.ahead + micros
    }
}

#[async_trait]
impl DistributedLock for Clocked {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::least("clocked");
        capabilities.fencing = Fencing::BestEffort;
        capabilities.clock_tokens = true;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        let lease = Arc::new(Held(Arc::clone(&self.held)));
        let pending = self.engine.pending(request.key(), lease, request.ttl());
        let sent = self.engine.now();
        let token = FencingToken::new(self.draw());
        self.held.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(self.tells_after).await;
        pending.granted(request, Grant::new(sent, Some(token)))
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.engine.drain(within).await
    }
}

#[derive(Debug)]
struct Held(Arc<AtomicU64>);

#[async_trait]
impl Lease for Held {
    fn liveness(&self) -> Liveness {
        Liveness::Reported
    }

    fn attach(&self, _control: LeaseControl) {}

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        Ok(None)
    }

    async fn downgrade(&self) -> Result<()> {
        unreachable!("nobody asks for it")
    }

    async fn release(&self) -> Result<Released> {
        self.0.fetch_sub(1, Ordering::SeqCst);
        Ok(Released::Clean)
    }
}

/// Two servers, of which the new one is ahead and the old one tells late.
fn moving(ahead: Duration, tells_after: Duration) -> (Migrate, [Arc<AtomicU64>; 2]) {
    let old = Clocked::new(Duration::ZERO, tells_after);
    let new = Clocked::new(ahead, Duration::ZERO);
    let held = [&old, &new].map(|server| Arc::clone(&server.held));
    let both = Migrate::new(Arc::new(old), Arc::new(new)).expect("no queue");
    (both, held)
}

fn count(held: &[Arc<AtomicU64>; 2]) -> [u64; 2] {
    held.each_ref().map(|count| count.load(Ordering::SeqCst))
}

#[tokio::test(start_paused = true)]
async fn the_pause_for_a_clock_is_part_of_the_wait() {
    let (both, held) = moving(millis(300), Duration::ZERO);
    let began = Instant::now();
    let error = both.lock_within("k", millis(200)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    assert!(error.to_string().contains("slower clock"), "{error}");
    let after = began.elapsed();
    assert!(
        after < millis(200),
        "refused after {after:?}, though the pause cannot end in time"
    );
    tokio::time::sleep(millis(100)).await;
    assert_eq!(count(&held), [0, 0]);

    let guard = both.lock_within("k", millis(400)).await.unwrap();
    assert!(guard.fencing_token().is_some());
    // Who waits for nobody has no wait to spend.
    assert!(both.try_lock("other").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_in_the_pause_is_no_outage() {
    let (both, _) = moving(millis(300), Duration::ZERO);
    let queue = LocalQueue::new(Arc::new(both));
    for _ in 0..2 {
        let error = queue.lock_within("k", millis(100)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_told_late_is_waited_out() {
    let (both, held) = moving(Duration::ZERO, millis(1_500));
    let began = Instant::now();
    let guard = both.lock("k").await.unwrap();
    assert!(guard.fencing_token().is_some());
    let after = began.elapsed();
    assert!(
        after >= millis(3_000),
        "granted after {after:?}, before the late grant is waited out"
    );
    assert_eq!(count(&held), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_by_seconds_are_a_mistake() {
    let (both, held) = moving(millis(1_500), Duration::ZERO);
    let error = both.lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    tokio::time::sleep(millis(100)).await;
    assert_eq!(count(&held), [0, 0]);
}
