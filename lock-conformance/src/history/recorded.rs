use std::ops::Deref;

use polylock_core::{
    AcquireRequest, Error, FencingToken, LockGuard, LockKey, LostReason, Released, Renewal, Result,
};
use polylock_history::What;
use tokio::time::Instant;

use super::access_of;
use super::recorder::Recorder;

/// A request whose outcome is to be noted; dropped, it was cancelled.
#[must_use = "dropping it notes a cancellation"]
#[derive(Debug)]
pub struct Attempt {
    recorder: Recorder,
    id: u64,
    key: LockKey,
    answered: bool,
}

impl Attempt {
    pub(super) fn new(recorder: Recorder, id: u64, request: &AcquireRequest) -> Self {
        let exact = request.renewal() == Renewal::Manual;
        let what = What::Requested {
            access: access_of(request.mode()),
            exact,
        };
        recorder.record(request.key(), id, what);
        Self {
            recorder,
            id,
            key: request.key().clone(),
            answered: false,
        }
    }

    /// Notes the grant, and everything that the holder does from now on.
    pub fn granted(self, guard: LockGuard) -> Recorded {
        let (recorder, key) = (self.recorder.clone(), self.key.clone());
        let id = self.noted(guard.fencing_token(), guard.valid_until());
        Recorded {
            guard: Some(guard),
            recorder,
            id,
            key,
        }
    }

    /// Notes a grant whose guard is out of reach, such as that of a leader. Returns its id in the history,
    /// with which the caller notes what the holder does.
    pub fn noted(mut self, token: Option<FencingToken>, valid_until: Option<Instant>) -> u64 {
        self.answered = true;
        let token = token.map(u64::from);
        let until = self.recorder.until(valid_until);
        self.recorder
            .record(&self.key, self.id, What::Granted { token, until });
        self.id
    }

    /// Notes the refusal.
    pub fn refused(mut self, error: &Error) {
        self.answered = true;
        let error = format!("{:?}", error.kind());
        self.recorder
            .record(&self.key, self.id, What::Refused { error });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.answered {
            self.recorder.record(&self.key, self.id, What::Cancelled);
        }
    }
}

/// A guard whose use is noted.
#[must_use = "dropping the guard releases the lock"]
#[derive(Debug)]
pub struct Recorded {
    guard: Option<LockGuard>,
    recorder: Recorder,
    id: u64,
    key: LockKey,
}

impl Recorded {
    /// Looks whether the lock is held, and notes it if so.
    pub fn look(&self) -> bool {
        // Stamped first: a pause after the look must not make the lock be held after its deadline. That is
        // read before the look too, so that a renewal in between does not extend it.
        let at = self.recorder.now();
        let until = self.recorder.until(self.valid_until());
        let held = self.is_held();
        if held {
            self.recorder
                .record_at(at, &self.key, self.id, What::Held { until });
        }
        held
    }

    /// Waits for the loss and notes it.
    ///
    /// # Cancel safety
    ///
    /// A loss that is not noted yet is noted by the next call.
    pub async fn lost(&self) -> LostReason {
        let reason = self.deref().lost().await;
        let what = What::Lost {
            reason: reason.as_str().to_owned(),
        };
        self.recorder.record(&self.key, self.id, what);
        reason
    }

    /// Extends the lease and notes it.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::renew`].
    ///
    /// # Cancel safety
    ///
    /// That of [`LockGuard::renew`]; the deadline that is noted may be too early.
    pub async fn renew(&self) -> Result<()> {
        self.deref().renew().await?;
        self.look();
        Ok(())
    }

    /// Releases the lock and notes the answer.
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// That of [`LockGuard::release`]; the answer is not noted.
    pub async fn release(mut self) -> Result<Released> {
        let Some(guard) = self.releasing() else {
            return Ok(Released::AlreadyLost);
        };
        let released = guard.release().await;
        let clean = match &released {
            Ok(released) => Some(*released == Released::Clean),
            Err(_) => None,
        };
        self.recorder
            .record(&self.key, self.id, What::Released { clean });
        released
    }

    fn releasing(&mut self) -> Option<LockGuard> {
        let guard = self.guard.take()?;
        // Stamped before the look: a pause in between must not make the lock be held for longer.
        let at = self.recorder.now();
        let held = guard.is_held();
        self.recorder
            .record_at(at, &self.key, self.id, What::Releasing { held });
        Some(guard)
    }
}

impl Deref for Recorded {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        self.guard
            .as_ref()
            .expect("BUG: a guard that ended is out of reach")
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        drop(self.releasing());
    }
}
