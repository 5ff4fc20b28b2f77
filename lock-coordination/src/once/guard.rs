use std::ops::Deref;
use std::time::{Duration, SystemTime};

use polylock_core::admin::Record;
use polylock_core::{Error, ErrorKind, LockGuard, LostReason, Result};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::{LastRun, Once, OnceRun, RunOutcome};
use crate::observer::CoordinationEvent;
use crate::requirements::{admin, token};

/// A run of a job that this instance has begun. Dropping it releases the lock, leaves the job due, and
/// notifies no observer.
///
/// It dereferences to [`OnceRun`], which has more methods. The example of [`Once::start`] uses it.
#[must_use = "dropping it leaves the job due"]
#[derive(Debug)]
pub struct OnceGuard {
    run: OnceRun,
    // Dropped in this order: tasks of the run learn of its end before the lock is released.
    at_work: watch::Sender<()>,
    guard: LockGuard,
    once: Once,
    started: SystemTime,
}

impl OnceGuard {
    pub(super) fn begin(once: &Once, last: Option<LastRun>, guard: LockGuard) -> Result<Self> {
        let token = token(&*once.locks, &guard)?;
        let (at_work, end) = watch::channel(());
        let run = OnceRun {
            token,
            lost: guard.lost(),
            end,
            last,
        };
        Ok(Self {
            run,
            at_work,
            guard,
            once: once.clone(),
            started: (once.clock)(),
        })
    }

    /// The lock that keeps other instances from running the job.
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Records how the run ended, and releases the lock.
    ///
    /// Its start is when the lock was acquired, its end is now. A run that [`Failed`](RunOutcome::Failed)
    /// is due at once.
    ///
    /// # Errors
    ///
    /// With an [unknown outcome](Error::is_outcome_unknown), so that others may find the job due and run it
    /// again:
    ///
    /// - [`Lost`](ErrorKind::Lost) if the lock is lost, or was lost while the run was recorded.
    /// - [`Unavailable`](ErrorKind::Unavailable) if the record could not be written for one ttl.
    /// - Others of [`LockAdmin::write_record`](polylock_core::admin::LockAdmin::write_record).
    ///
    /// # Cancel safety
    ///
    /// The run may or may not be recorded. The lock is released in the background, at worst after one ttl.
    pub async fn finish(self, outcome: RunOutcome) -> Result<()> {
        let (guard, recorded) = self.record(outcome).await;
        release(guard).await;
        recorded
    }

    /// Records how the run ended, as [`finish`](Self::finish) does, and returns the lock, whose release says
    /// whether it was held until then.
    ///
    /// # Errors
    ///
    /// Those of [`finish`](Self::finish).
    ///
    /// # Cancel safety
    ///
    /// As for [`finish`](Self::finish).
    pub async fn record(self, outcome: RunOutcome) -> (LockGuard, Result<()>) {
        let once = self.once.clone();
        let (guard, recorded) = self.write(outcome).await;
        let word = match (&recorded, outcome) {
            (Err(_), RunOutcome::Ran) => "unrecorded",
            _ => outcome.as_str(),
        };
        let job = &once.name;
        once.emit(&CoordinationEvent::Once { job, outcome: word });
        (guard, recorded)
    }

    /// The same as `finish` without telling the observer.
    pub(super) async fn end(self, outcome: RunOutcome) -> Result<()> {
        let (guard, recorded) = self.write(outcome).await;
        release(guard).await;
        recorded
    }

    async fn write(self, outcome: RunOutcome) -> (LockGuard, Result<()>) {
        drop(self.at_work);
        let finished = (self.once.clock)();
        let label = self.once.request.label().clone();
        let run = LastRun::new(self.started, finished, label, outcome);
        let record = Record::new(self.run.token, run.encode());
        let recorded = write(&self.once, &self.guard, &record).await;
        (self.guard, recorded.map_err(Error::with_unknown_outcome))
    }
}

impl Deref for OnceGuard {
    type Target = OnceRun;

    fn deref(&self) -> &OnceRun {
        &self.run
    }
}

/// Records a run while the lock is held, and repeats that for one ttl: a server that is away for a
/// moment should not cost another run.
async fn write(once: &Once, guard: &LockGuard, record: &Record) -> Result<()> {
    let (admin, key) = (admin(&*once.locks)?, once.request.key());
    let deadline = Instant::now() + once.request.ttl();
    loop {
        let written = guard.run(admin.write_record(key, record, once.keep));
        let Ok(written) = timeout_at(deadline, written).await else {
            let message = format!("timed out after {:?}", once.request.ttl());
            return Err(Error::new(ErrorKind::Unavailable, message).with_key(key));
        };
        match written {
            Ok(Ok(true)) => return Ok(()),
            // A later holder has recorded a run.
            Ok(Ok(false)) => return Err(Error::lost(LostReason::Stolen).with_key(key)),
            Ok(Err(error)) if error.is_retryable() && Instant::now() < deadline => {
                sleep(RETRY_INTERVAL).await;
            }
            Ok(Err(error)) | Err(error) => return Err(error),
        }
    }
}

/// An unconfirmed release is retried in the background; the run is already recorded.
pub(super) async fn release(guard: LockGuard) {
    if let Err(error) = guard.release().await {
        tracing::debug!(%error, "the release is not confirmed");
    }
}

const RETRY_INTERVAL: Duration = Duration::from_millis(200);
