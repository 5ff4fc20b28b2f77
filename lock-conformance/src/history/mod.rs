//! What happens to locks, recorded and judged.
//!
//! A [`Recorder`] notes events while a test runs, in memory and as JSON lines; a [`Checker`] judges
//! the events of all processes together, and says what was violated by which acquisition.

mod recorded;
mod recorder;

use std::sync::Mutex;

use polylock_core::fencing::StaleToken;
use polylock_core::{FencingToken, LockKey, Mode};

use crate::lock;

pub use self::recorded::{Attempt, Recorded};
pub use self::recorder::Recorder;
pub use polylock_history::{
    Access, Checker, Exclusion, HistoryEvent, Hold, Summary, TokenOrder, Verdict, Violation, What,
    check_holds,
};

/// How a lock in this mode is held, for the judge.
#[must_use]
pub fn access_of(mode: Mode) -> Access {
    match mode {
        Mode::Permit { limit } => Access::Permit(limit),
        Mode::Shared => Access::Shared,
        // A mode that the judge does not know is held to the strictest rule.
        _ => Access::Exclusive,
    }
}

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
    /// Adds one the careless way: other tasks run between reading and writing.
    ///
    /// # Cancel safety
    ///
    /// A dropped future has added nothing.
    pub async fn increment(&self) {
        let read = self.value();
        tokio::task::yield_now().await;
        *lock(&self.0) = read + 1;
    }

    /// Returns the present value.
    #[must_use]
    pub fn value(&self) -> u64 {
        *lock(&self.0)
    }
}
