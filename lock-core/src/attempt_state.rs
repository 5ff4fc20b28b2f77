//! The state of the one request of this process on the server.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::{MIN_ATTEMPT, Mutex};

/// One attempt to acquire a key. The request on the server refers to it, and the backend records in it
/// what the server reports.
#[derive(Debug)]
pub(crate) struct AttemptState {
    pub(crate) ttl: Duration,
    /// When the first of the attempts began that this one follows.
    begun: Instant,
    sent: Instant,
    /// The server has reported another holder.
    seen_held: AtomicBool,
    /// The lock was held in this process, or an earlier attempt saw it held. The server has not reported it to this attempt.
    assumed_held: AtomicBool,
    assumed_since: Instant,
    /// Set while the attempt waits for room in this client.
    full: Mutex<Option<WhyFull>>,
    /// Why the server could not grant the lock when it was last asked, where the backend says so. A holder
    /// that was reported since comes first.
    unavailable: Mutex<Option<String>>,
}

/// Says why a client has no room for an attempt, or `None` if it has.
#[derive(Clone)]
pub(crate) struct WhyFull(pub(crate) Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl fmt::Debug for WhyFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WhyFull")
    }
}

impl AttemptState {
    /// `assumed_held` if the lock is held in this process, or was until now.
    pub(crate) fn new(ttl: Duration, assumed_held: bool) -> Self {
        let now = Instant::now();
        Self {
            ttl,
            begun: now,
            sent: now,
            seen_held: AtomicBool::new(false),
            assumed_held: AtomicBool::new(assumed_held),
            assumed_since: now,
            full: Mutex::default(),
            unavailable: Mutex::default(),
        }
    }

    /// For another attempt in place of this one.
    pub(crate) fn anew(&self, ttl: Duration) -> Self {
        let is_seen = self.is_seen_held();
        let anew = Self::new(ttl, is_seen || self.assumed_held.load(Ordering::Relaxed));
        Self {
            begun: self.begun,
            assumed_since: match is_seen {
                true => anew.assumed_since,
                false => self.assumed_since,
            },
            ..anew
        }
    }

    /// The server reports that the lock is held.
    pub(crate) fn mark_contended(&self) {
        self.seen_held.store(true, Ordering::Relaxed);
    }

    /// What was known before may be over. `why` is what the backend says about it.
    pub(crate) fn mark_unresponsive(&self, why: Option<&str>) {
        *self.unavailable.lock() = why.map(str::to_owned);
        self.seen_held.store(false, Ordering::Relaxed);
        self.assumed_held.store(false, Ordering::Relaxed);
    }

    pub(crate) fn why_unavailable(&self) -> Option<String> {
        self.unavailable.lock().clone()
    }

    /// The attempt waits for room in this client, or does so no longer.
    pub(crate) fn mark_full(&self, why: Option<WhyFull>) {
        *self.full.lock() = why;
    }

    pub(crate) fn why_full(&self) -> Option<String> {
        let why = self.full.lock().clone();
        // Outside of the mutex: it is the backend's.
        why.and_then(|WhyFull(why)| why())
    }

    /// Until when the server has time for its first answer, even if the waits for it end earlier.
    pub(crate) fn min_end(&self) -> Instant {
        self.sent + MIN_ATTEMPT
    }

    /// Whether the server has reported a holder.
    pub(crate) fn is_seen_held(&self) -> bool {
        self.seen_held.load(Ordering::Relaxed)
    }

    /// Whether the server has had time to answer.
    pub(crate) fn is_overdue(&self) -> bool {
        self.begun.elapsed() >= ANSWER_TIMEOUT
    }

    /// Whether the server has reported a holder, or this process assumes one and no answer is overdue.
    pub(crate) fn counts_as_held(&self) -> bool {
        let is_fresh = || self.assumed_since.elapsed() < ANSWER_TIMEOUT;
        self.is_seen_held() || self.assumed_held.load(Ordering::Relaxed) && is_fresh()
    }
}

/// How long a first answer may take until the server counts as silent. A healthy server answers sooner,
/// also on a new connection; until then another task is about to have the lock, which is contention.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
