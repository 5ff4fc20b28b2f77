use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use http::HeaderMap;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::held_lock::{HeldLock, LockerGuard};
use crate::rejection::has_trailers;

use super::body::BodyError;
use super::options::OnLost;

/// The lock of a body that is being sent. Dropped, it releases the lock.
#[derive(Debug)]
pub(super) struct BodyLock {
    guard: LockerGuard,
    on_lost: OnLost,
    has_trailers: bool,
    gate: Arc<Gate>,
    watch: AbortHandle,
}

/// Keeps the lock from being released while the body is polled.
#[derive(Debug, Default)]
struct Gate(Mutex<BodyLockState>);

#[derive(Debug, Default)]
struct BodyLockState {
    /// Whether the body is being polled, on another thread than the watcher's.
    runs: bool,
    cut: Option<BodyError>,
    reader: Option<Waker>,
}

impl BodyLock {
    /// Spawns a task that watches the time: the body is never polled if the client does not read. `response`
    /// are the headers before the body.
    pub(super) fn new(
        guard: LockerGuard,
        max: Duration,
        on_lost: OnLost,
        response: &HeaderMap,
    ) -> Self {
        let gate = Arc::<Gate>::default();
        let held = HeldLock::clone(&guard);
        let watch = tokio::spawn(watch(held, max, on_lost, Arc::clone(&gate)));
        Self {
            guard,
            on_lost,
            has_trailers: has_trailers(response),
            gate,
            watch: watch.abort_handle(),
        }
    }

    /// Whether a body that is cut off ends with trailers that say so, and not with an error.
    pub(super) fn has_trailers(&self) -> bool {
        self.has_trailers
    }

    /// Polls the body, unless it is cut off. Data from a poll during which it is cut off is not sent.
    pub(super) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> T,
    ) -> Result<T, BodyError> {
        self.gate.change(|state| {
            self.look(state)?;
            state.runs = true;
            state.reader = Some(cx.waker().clone());
            Ok(())
        })?;
        let polled = poll(cx);
        self.gate.change(|state| {
            state.runs = false;
            self.look(state)
        })?;
        Ok(polled)
    }

    fn look(&self, state: &BodyLockState) -> Result<(), BodyError> {
        if let Some(error) = state.cut {
            return Err(error);
        }
        // The watcher may run later than this task.
        let lost = self.guard.lost_reason();
        match lost.filter(|_| self.on_lost == OnLost::Cancel) {
            Some(reason) => Err(BodyError::Lost(reason)),
            None => Ok(()),
        }
    }
}

impl Drop for BodyLock {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Gate {
    fn change<T>(&self, change: impl FnOnce(&mut BodyLockState) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the body; false if it is being polled, and ends by itself.
    fn cut(&self, error: BodyError) -> bool {
        let (runs, reader) = self.change(|state| {
            state.cut = Some(error);
            (state.runs, state.reader.take())
        });
        if let Some(reader) = reader {
            // A waker that panics must not keep the lock held.
            drop(catch_unwind(AssertUnwindSafe(|| reader.wake())));
        }
        !runs
    }
}

/// Cuts the body off when its lock is lost or `max` has passed, and releases the lock.
async fn watch(held: HeldLock, max: Duration, on_lost: OnLost, gate: Arc<Gate>) {
    let mut timeout = pin!(sleep(max));
    let error = tokio::select! {
        biased;
        reason = held.lost() => match on_lost {
            OnLost::Cancel => BodyError::Lost(reason),
            OnLost::Continue => {
                timeout.await;
                BodyError::TooSlow(max)
            }
        },
        () = &mut timeout => BodyError::TooSlow(max),
    };
    // A body that is being polled releases the lock itself, when it has seen that it is cut off.
    if gate.cut(error) {
        drop(held.release().await);
    }
}
