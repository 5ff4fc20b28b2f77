use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use polylock_core::engine::{BootClock, Clock, Moment};
use polylock_core::{AcquireRequest, DistributedLock, LockKey, Result};
use polylock_history::{HistoryEvent, What};
use tokio::time::Instant;

use super::recorded::{Attempt, Recorded};
use crate::lock;

/// Notes what happens to locks, for a [`Checker`](super::Checker).
///
/// Clones write to the same history.
#[derive(Clone)]
pub struct Recorder(Arc<RecorderInner>);

struct RecorderInner {
    clock: BootClock,
    pages: Mutex<Pages>,
    last_attempt: AtomicU64,
}

#[derive(Default)]
struct Pages {
    events: Vec<HistoryEvent>,
    output: Option<Box<dyn Write + Send>>,
    broken: bool,
}

impl Recorder {
    /// Starts a history in memory, by the clock of the machine.
    #[must_use]
    pub fn new() -> Self {
        // Ids of different processes must differ, and a process has more than one recorder.
        static RECORDERS: AtomicU64 = AtomicU64::new(0);
        let recorder = RECORDERS.fetch_add(1, Ordering::Relaxed) & 0xFFF;
        let first = u64::from(std::process::id()) << 36 | recorder << 24;
        let last_attempt = AtomicU64::new(first);
        Self(Arc::new(RecorderInner {
            clock: BootClock::default(),
            pages: Mutex::default(),
            last_attempt,
        }))
    }

    /// Writes each event to `output` as well, as a line that is flushed before the call returns.
    #[must_use]
    pub fn with_output(self, output: impl Write + Send + 'static) -> Self {
        lock(&self.0.pages).output = Some(Box::new(output));
        self
    }

    /// The events so far.
    ///
    /// # Panics
    ///
    /// If an event could not be written to the output: a history with holes proves nothing.
    #[must_use]
    pub fn events(&self) -> Vec<HistoryEvent> {
        let pages = lock(&self.0.pages);
        assert!(!pages.broken, "an event could not be written to the output");
        pages.events.clone()
    }

    /// Notes a request about to be made.
    pub fn attempt(&self, request: &AcquireRequest) -> Attempt {
        let id = self.0.last_attempt.fetch_add(1, Ordering::Relaxed) + 1;
        Attempt::new(self.clone(), id, request)
    }

    /// Acquires and notes what comes of it.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// That of [`DistributedLock::acquire`]; the cancellation is noted.
    pub async fn acquire(
        &self,
        locks: &dyn DistributedLock,
        request: &AcquireRequest,
    ) -> Result<Recorded> {
        let attempt = self.attempt(request);
        match locks.acquire(request).await {
            Ok(guard) => Ok(attempt.granted(guard)),
            Err(error) => {
                attempt.refused(&error);
                Err(error)
            }
        }
    }

    /// Notes what the store has of a key at the end.
    pub fn left(&self, key: &LockKey, holders: u64, waiters: u64) {
        self.record(key, 0, What::Left { holders, waiters });
    }

    /// Notes an event that has no method of its own.
    pub fn record(&self, key: &LockKey, attempt: u64, what: What) {
        self.record_at(self.now(), key, attempt, what);
    }

    /// The time that events are stamped with.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// Notes an event that happened at `at` or after it.
    pub fn record_at(&self, at: Moment, key: &LockKey, attempt: u64, what: What) {
        let mut pages = lock(&self.0.pages);
        let mut event = HistoryEvent::new(at.as_nanos(), key.as_str(), attempt, what);
        event.seq = pages.events.len() as u64;
        if let Some(output) = &mut pages.output {
            let mut line = serde_json::to_vec(&event).unwrap_or_default();
            line.push(b'\n');
            let written = output.write_all(&line).and_then(|()| output.flush());
            pages.broken |= written.is_err();
        }
        pages.events.push(event);
    }

    /// Until when a lock is valid, by the clock of the history, and never later than it really is.
    #[must_use]
    pub fn until(&self, valid_until: Option<Instant>) -> Option<u64> {
        let until = valid_until?;
        // This clock is read first: what passes between the two reads shortens the result.
        let now = self.now();
        Some((now + until.saturating_duration_since(Instant::now())).as_nanos())
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("events", &lock(&self.0.pages).events.len())
            .finish()
    }
}
