mod guard;
mod last_run;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use polylock_core::engine::isolated;
use polylock_core::{
    AcquireRequest, DistributedLock, Error, ErrorKind, FencingToken, Label, LockKey, LostSignal,
    Result, Wait,
};
use tokio::sync::watch;

use crate::observer::{CoordinationEvent, CoordinationObserver, emit};
use crate::requirements::{admin, check};

use self::guard::release;
use self::last_run::Rule;

pub use self::guard::OnceGuard;
pub use self::last_run::{LastRun, RunOutcome};

/// A job that many instances start and only one runs: once per period, or once per key.
///
/// The run is recorded beside the lock: its start, its end, the instance and whether it succeeded. A later
/// instance finds the record and skips the job; a concurrent one finds the lock held. A failed job is due at
/// once. If the process dies, it leaves no record, and the job is due when its lease has ended.
///
/// # Guarantees
///
/// Two runs never overlap, within the guarantees of the lock. Once is **not** exactly once: the job runs
/// again if its process dies or loses the lock before the record is written, even if the work itself was
/// done. Make it repeatable, or send [`OnceRun::fencing_token`] with its writes.
///
/// Times come from the clocks of the instances. Two instances whose clocks differ by `d` run the job at least
/// `period - min(period / 10, 1 min) - d` apart. One tick of all instances is one run as long as `d` is below
/// that. A clock that is fast by `h`, up to a period, delays the next run of the others by `h`. A recorded
/// start more than a period in the future, by the reader's clock, comes from a wrong clock and is ignored:
/// otherwise no host would run the job until then. An instance whose clock is slow by more than a period runs
/// the job each time.
///
/// # Cost
///
/// A run costs one lock, two reads and one write of the record; a skipped one costs one read.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use polylock_coordination::{Once, OnceOutcome};
/// use polylock_core::memory::Memory;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let store = Memory::new();
/// for instance in [store.client(), store.client()] {
///     let invoices = Once::for_key(Arc::new(instance), "invoices", "2026-11")?;
///     match invoices.run(|run| send_invoices(run.fencing_token().value())).await? {
///         OnceOutcome::Ran(sent) => assert_eq!(sent, 3),
///         OnceOutcome::Skipped(last) => println!("sent by {}", last.label),
///         OnceOutcome::Failed(error) => eprintln!("{error}, may be repeated"),
///         _ => println!("another instance is sending them"),
///     }
/// }
/// # Ok(()) }
///
/// async fn send_invoices(token: u64) -> Result<u32, std::io::Error> {
///     # assert!(token > 0);
///     Ok(3)
/// }
/// ```
#[doc(alias = "cron")]
#[doc(alias = "ShedLock")]
#[derive(Clone)]
pub struct Once {
    locks: Arc<dyn DistributedLock>,
    name: Arc<str>,
    request: AcquireRequest,
    rule: Rule,
    keep: Duration,
    observer: Option<Arc<dyn CoordinationObserver>>,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Once {
    /// How long a run is remembered, unless set.
    pub const DEFAULT_KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    /// Makes a job that runs once in each period of at least 1 s. The key of its lock is the name: an
    /// election or another job of that name would replace its record. Nothing is sent.
    ///
    /// The job is due when the last successful run began a period ago, less a tolerance of a tenth of the
    /// period, at most a minute. A timer that fires a little early therefore does not skip a whole period.
    ///
    /// # Errors
    ///
    /// - [`Unsupported`](ErrorKind::Unsupported) if the backend has no fencing tokens or no administration.
    /// - [`InvalidKey`](ErrorKind::InvalidKey) if the name is not a key.
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest) if the period is shorter than 1 s.
    pub fn every<K>(locks: Arc<dyn DistributedLock>, name: K, period: Duration) -> Result<Self>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        if period < MIN_PERIOD {
            let message = format!("the period must be 1s or more, not {period:?}");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let name = name.try_into().map_err(Into::into)?;
        let mut once = Self::new(locks, &name, name.clone(), Rule::Every(period))?;
        once.keep = once.keep.max(period.saturating_mul(2));
        Ok(once)
    }

    /// Makes a job that runs once for `key`, such as the date `2026-11-25`. The lock has the key
    /// `NAME/KEY`. Nothing is sent.
    ///
    /// An instance that comes late with an old key finds the record of that key, as long as it is
    /// [kept](Self::keep).
    ///
    /// # Errors
    ///
    /// - [`Unsupported`](ErrorKind::Unsupported) if the backend has no fencing tokens or no administration.
    /// - [`InvalidKey`](ErrorKind::InvalidKey) if `NAME` or `NAME/KEY` is not a key, or `KEY` is empty or
    ///   contains `/`.
    pub fn for_key<K>(locks: Arc<dyn DistributedLock>, name: K, key: &str) -> Result<Self>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        if key.is_empty() || key.contains('/') {
            let message = "the key of a job must not be empty or contain `/`";
            return Err(Error::new(ErrorKind::InvalidKey, message));
        }
        let name = name.try_into().map_err(Into::into)?;
        let full = LockKey::new(format!("{name}/{key}"))?;
        Self::new(locks, &name, full, Rule::Key)
    }

    fn new(
        locks: Arc<dyn DistributedLock>,
        name: &LockKey,
        key: LockKey,
        rule: Rule,
    ) -> Result<Self> {
        check(&*locks)?;
        let name = name.as_str();
        let request = AcquireRequest::new(key)
            .with_class(name)
            .with_wait(Wait::Never);
        Ok(Self {
            locks,
            name: name.into(),
            request,
            rule,
            keep: Self::DEFAULT_KEEP,
            observer: None,
            clock: Arc::new(SystemTime::now),
        })
    }

    /// Sets the lease: a job whose process dies may run again after that time. It is renewed while the job
    /// runs. Default: 30 s; the range is that of [`AcquireRequest::with_ttl`], and a run with another one
    /// fails.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.with_ttl(ttl);
        self
    }

    /// Sets the max time of a run, after which it is stopped, so that a hung job does not block its
    /// successors. Default: 1 h; `None` never stops it.
    #[must_use]
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.request = self.request.with_max_hold(max_hold);
        self
    }

    /// Sets the label of this instance that others see. Default: host, process id, user and program.
    #[must_use]
    pub fn label(mut self, label: Label) -> Self {
        self.request = self.request.with_label(label);
        self
    }

    /// Sets the min time for which a run is remembered. Default: 7 days, or two periods if that is longer.
    ///
    /// A job started again with the same key after that time runs again. ZooKeeper keeps each record forever.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = match self.rule {
            Rule::Every(period) => keep.max(period.saturating_mul(2)),
            Rule::Key => keep,
        };
        self
    }

    /// Sets the observer of runs, for metrics. Default: none.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn CoordinationObserver>) -> Self {
        self.observer = Some(observer);
        let job = &self.name;
        self.emit(&CoordinationEvent::Job { job });
        self
    }

    /// Runs `work` if the job is due and no other instance is running it.
    ///
    /// `work` is dropped if the lock is lost meanwhile. If the lock is held when `work` ends, the result is `Ok`,
    /// even if it failed or could not be recorded.
    ///
    /// # Errors
    ///
    /// - [`Lost`](ErrorKind::Lost), with an [unknown outcome](Error::is_outcome_unknown), if the lock was lost
    ///   while `work` ran: it may have had effects, and another instance may run it.
    /// - Those of [`DistributedLock::acquire`] and of
    ///   [`LockAdmin::record`](polylock_core::admin::LockAdmin::record) if the lock service fails: `work` did
    ///   not run.
    ///
    /// # Panics
    ///
    /// If `work` does; the lock is released, and the job is due. The observer gets `failed`.
    ///
    /// # Cancel safety
    ///
    /// A dropped future drops `work` and then releases the lock in the background, at worst after one ttl.
    /// The run is not recorded and the job is due, unless the future was dropped during the recording. The
    /// observer gets `cancelled`.
    pub async fn run<W, F, T, E>(&self, work: W) -> Result<OnceOutcome<T, E>>
    where
        W: FnOnce(OnceRun) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: Send,
    {
        let mut report = AttemptReport {
            once: self,
            is_polled: AtomicBool::new(false),
            outcome: None,
        };
        let ended = self.attempt(work, &report.is_polled).await;
        report.outcome = Some(match &ended {
            Ok(outcome) => outcome.as_str(),
            Err(error) if error.kind() == ErrorKind::Lost => "lost",
            Err(_) => "error",
        });
        ended
    }

    async fn attempt<W, F, T, E>(
        &self,
        work: W,
        is_polled: &AtomicBool,
    ) -> Result<OnceOutcome<T, E>>
    where
        W: FnOnce(OnceRun) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: Send,
    {
        let started = match self.begin().await? {
            OnceStart::Busy => return Ok(OnceOutcome::Busy),
            OnceStart::Skipped(last) => return Ok(OnceOutcome::Skipped(last)),
            OnceStart::Started(started) => started,
        };
        let run = OnceRun::clone(&started);
        let work = marked(is_polled, async move { work(run).await });
        let done = started.guard().run(work).await;
        match done.map_err(Error::with_unknown_outcome)? {
            Ok(value) => Ok(match started.end(RunOutcome::Ran).await {
                Ok(()) => OnceOutcome::Ran(value),
                Err(error) => OnceOutcome::Unrecorded { value, error },
            }),
            Err(error) => {
                if let Err(unrecorded) = started.end(RunOutcome::Failed).await {
                    // The last run is older or failed as well, so that the job is due all the same.
                    tracing::warn!(job = &*self.name, error = %unrecorded, "a failed run is not recorded");
                }
                Ok(OnceOutcome::Failed(error))
            }
        }
    }

    /// Begins a run if the job is due and no other instance is running it. The run is a guard, for work that
    /// [`run`](Self::run) cannot drop when the lock is lost, such as a process that must be stopped first.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`] and of
    /// [`LockAdmin::record`](polylock_core::admin::LockAdmin::record) if the lock service fails.
    ///
    /// # Cancel safety
    ///
    /// A dropped future releases a granted lock; at worst the lock is free after one ttl. Nothing is
    /// recorded.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use polylock_coordination::{Once, OnceStart, RunOutcome};
    /// use polylock_core::memory::Memory;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
    /// let locks = Arc::new(Memory::new());
    /// let report = Once::every(locks, "report", Duration::from_secs(3600))?;
    /// let OnceStart::Started(run) = report.start().await? else {
    ///     panic!("nobody has run it yet");
    /// };
    /// tokio::select! {
    ///     reason = run.lost() => eprintln!("stops the work: {reason}"),
    ///     () = std::future::ready(()) => run.finish(RunOutcome::Ran).await?, // the work
    /// }
    /// assert!(matches!(report.start().await?, OnceStart::Skipped(_)));
    /// # Ok(()) }
    /// ```
    pub async fn start(&self) -> Result<OnceStart> {
        let begun = self.begin().await;
        let outcome = match &begun {
            Ok(OnceStart::Busy) => "busy",
            Ok(OnceStart::Skipped(_)) => "skipped",
            Ok(OnceStart::Started(_)) => return begun,
            Err(_) => "error",
        };
        let job = &self.name;
        self.emit(&CoordinationEvent::Once { job, outcome });
        begun
    }

    async fn begin(&self) -> Result<OnceStart> {
        let last = self.last_run().await?;
        if let Some(last) = self.skips(last.as_ref()) {
            return Ok(OnceStart::Skipped(last));
        }
        let guard = match self.locks.acquire(&self.request).await {
            Err(error) if error.kind() == ErrorKind::Contended => return Ok(OnceStart::Busy),
            guard => guard?,
        };
        // Another instance may have run it since, as it may until the lock is held.
        let last = self.last_run().await?;
        if let Some(last) = self.skips(last.as_ref()) {
            release(guard).await;
            return Ok(OnceStart::Skipped(last));
        }
        Ok(OnceStart::Started(OnceGuard::begin(self, last, guard)?))
    }

    /// The last run that was recorded, also if it is long ago; `None` if there is none.
    ///
    /// One request.
    ///
    /// # Errors
    ///
    /// Those of [`LockAdmin::record`](polylock_core::admin::LockAdmin::record).
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    pub async fn last_run(&self) -> Result<Option<LastRun>> {
        let record = admin(&*self.locks)?.record(self.request.key()).await?;
        Ok(record.and_then(|record| LastRun::decode(&record.bytes)))
    }

    /// The last run, if the job is not due because of it.
    fn skips(&self, last: Option<&LastRun>) -> Option<LastRun> {
        let last = last?;
        (!self.rule.is_due(last, (self.clock)())).then(|| last.clone())
    }

    fn emit(&self, event: &CoordinationEvent<'_>) {
        emit(self.observer.as_ref(), event);
    }
}

/// Awaits `work`, and sets `is_polled` while it is polled. If `work` panics, it stays set.
async fn marked<T: Send>(is_polled: &AtomicBool, work: impl Future<Output = T> + Send) -> T {
    let mut work = pin!(work);
    let poll = poll_fn(|cx| {
        is_polled.store(true, Ordering::Relaxed);
        let polled = work.as_mut().poll(cx);
        is_polled.store(false, Ordering::Relaxed);
        polled
    });
    poll.await
}

/// Reports an attempt when it ends; without an outcome, the work has panicked or the attempt was dropped.
struct AttemptReport<'a> {
    once: &'a Once,
    /// The work is polled. The thread may also panic in a future beside the attempt, which is dropped then.
    is_polled: AtomicBool,
    outcome: Option<&'static str>,
}

impl Drop for AttemptReport<'_> {
    fn drop(&mut self) {
        let is_polled = *self.is_polled.get_mut();
        let outcome = self.outcome.unwrap_or_else(|| match is_polled {
            true => RunOutcome::Failed.as_str(),
            false => "cancelled",
        });
        let job = &self.once.name;
        self.once.emit(&CoordinationEvent::Once { job, outcome });
    }
}

const MIN_PERIOD: Duration = Duration::from_secs(1);

/// The context of a run.
///
/// The example of [`Once`] uses it.
#[derive(Clone, Debug)]
pub struct OnceRun {
    token: FencingToken,
    lost: LostSignal,
    /// Closed when the work has ended.
    end: watch::Receiver<()>,
    last: Option<LastRun>,
}

impl OnceRun {
    /// The token to send with every write of the job; larger than that of every earlier run.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// The signal that the lock is lost, upon which the work is dropped. It does not fire after the work has
    /// ended: a task that the work spawned waits for [`ended`](Self::ended).
    #[must_use]
    pub fn lost(&self) -> LostSignal {
        self.lost.clone()
    }

    /// Waits until the work has returned, panicked or been dropped, or the lock is lost; for tasks that the
    /// work spawned.
    ///
    /// It is ready before the lock is released.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; the end is final, and the next call returns at once.
    pub async fn ended(&self) {
        let mut end = self.end.clone();
        tokio::select! {
            _ = self.lost() => {}
            // Nothing is sent.
            _ = isolated(end.changed()) => {}
        }
    }

    /// The last run that was recorded, for jobs that continue where it began.
    #[must_use]
    pub fn last_run(&self) -> Option<&LastRun> {
        self.last.as_ref()
    }
}

/// The outcome of an attempt to begin a run.
///
/// The example of [`Once::start`] matches it.
#[non_exhaustive]
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each run")]
pub enum OnceStart {
    /// Another instance is running the job.
    Busy,
    /// It is not due: this was the last run.
    Skipped(LastRun),
    /// This instance runs it.
    Started(OnceGuard),
}

/// The outcome of an attempt to run a job.
///
/// The example of [`Once`] matches it.
#[non_exhaustive]
#[derive(Debug)]
pub enum OnceOutcome<T, E> {
    /// Another instance is running it.
    Busy,
    /// It ran and failed with this error; it is due at once.
    Failed(E),
    /// It ran with this result, and that is recorded.
    Ran(T),
    /// It is not due: this was the last run.
    Skipped(LastRun),
    /// It ran with this result, which could not be recorded: the lock was lost after the work was done, or the
    /// record could not be written for one ttl. Others may find it due and run it again.
    Unrecorded {
        /// The result of the work.
        value: T,
        /// Why it is not known to be recorded; its outcome is [unknown](Error::is_outcome_unknown).
        error: Error,
    },
}

impl<T, E> OnceOutcome<T, E> {
    /// One word for logs and metrics, such as `"skipped"`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Failed(_) => RunOutcome::Failed.as_str(),
            Self::Ran(_) => RunOutcome::Ran.as_str(),
            Self::Skipped(_) => "skipped",
            Self::Unrecorded { .. } => "unrecorded",
        }
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("key", self.request.key())
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}
