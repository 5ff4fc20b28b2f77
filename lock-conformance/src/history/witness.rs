//! Protected resources that show whether locks protect them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polylock_core::fencing::StaleToken;
use polylock_core::{FencingToken, LockKey};
use polylock_history::What;

use super::recorder::Recorder;

/// A register that refuses a write with a smaller token than it has seen, as a resource should.
///
/// Writes are noted in the history, so that the checker can judge the register itself.
#[derive(Debug)]
pub struct FencedRegister {
    recorder: Recorder,
    key: LockKey,
    largest: Mutex<u64>,
}

impl FencedRegister {
    /// A register that the lock `key` protects.
    #[must_use]
    pub fn new(recorder: Recorder, key: LockKey) -> Self {
        Self {
            recorder,
            key,
            largest: Mutex::new(0),
        }
    }

    /// Writes with the token of a holder.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] if a larger one has been seen.
    pub fn write(&self, token: FencingToken) -> Result<(), StaleToken> {
        let mut largest = lock(&self.largest);
        let value = token.value();
        let accepted = value >= *largest;
        // Noted under the mutex: the history has the order of the register.
        let what = What::Wrote {
            token: value,
            accepted,
        };
        self.recorder.record(&self.key, 0, what);
        if !accepted {
            let newest = FencingToken::new(*largest);
            return Err(StaleToken::new(self.key.as_str(), token).with_newest(newest));
        }
        *largest = value;
        Ok(())
    }
}

/// A counter that is read, and written a moment later: two increments at once lose one.
#[derive(Debug, Default)]
pub struct Counter(Mutex<u64>);

impl Counter {
    /// Adds one the careless way, with a pause between reading and writing.
    ///
    /// # Cancel safety
    ///
    /// A dropped future has added nothing.
    pub async fn increment(&self, pause: Duration) {
        let read = self.value();
        if pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pause).await;
        }
        *lock(&self.0) = read + 1;
    }

    /// Returns the present value.
    #[must_use]
    pub fn value(&self) -> u64 {
        *lock(&self.0)
    }
}

fn lock(value: &Mutex<u64>) -> MutexGuard<'_, u64> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
