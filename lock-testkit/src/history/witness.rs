//! Things that locks protect, which tell whether they did.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{FencingToken, LockKey};
use lock_history::What;

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
        let token = token.value();
        let accepted = token >= *largest;
        // Noted under the mutex: the history has the order of the register.
        self.recorder
            .record(&self.key, 0, What::Wrote { token, accepted });
        if !accepted {
            return Err(StaleToken {
                token,
                largest: *largest,
            });
        }
        *largest = token;
        Ok(())
    }
}

/// A write came from a former holder.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StaleToken {
    /// The token of the write.
    pub token: u64,
    /// The largest token that the register has seen.
    pub largest: u64,
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} is older than {}", self.token, self.largest)
    }
}

impl std::error::Error for StaleToken {}

/// A counter that is read, and written a moment later: two who do it at once lose an increment.
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

    /// What it is.
    #[must_use]
    pub fn value(&self) -> u64 {
        *lock(&self.0)
    }
}

fn lock(value: &Mutex<u64>) -> MutexGuard<'_, u64> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
