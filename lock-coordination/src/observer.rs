use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Receives the events of elections and jobs, for metrics.
///
/// Called on the thread of the event, also on that of the engine: it must return quickly and not block.
/// A panic is caught and changes nothing.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use polylock_coordination::{CoordinationEvent, CoordinationObserver, Election};
/// use polylock_core::memory::Memory;
///
/// #[derive(Debug, Default)]
/// struct Elections(AtomicUsize);
///
/// impl CoordinationObserver for Elections {
///     fn happened(&self, event: &CoordinationEvent<'_>) {
///         if let CoordinationEvent::Elected { .. } = event {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let elections = Arc::new(Elections::default());
/// let election = Election::new(Arc::new(Memory::new()), "scheduler")?.observer(elections.clone());
/// election.campaign().await?.resign().await?;
/// assert_eq!(elections.0.load(Ordering::Relaxed), 1);
/// # Ok(()) }
/// ```
pub trait CoordinationObserver: fmt::Debug + Send + Sync + 'static {
    /// Takes note of an event.
    fn happened(&self, event: &CoordinationEvent<'_>);
}

/// Something that happened to an election or a job.
///
/// The example of [`CoordinationObserver`] counts events of one kind.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CoordinationEvent<'a> {
    /// This process may lead, from when the observer is set; its metrics can start at zero.
    #[non_exhaustive]
    Candidate {
        /// The name of the election.
        election: &'a str,
    },
    /// This process leads; one `Ended` follows.
    #[non_exhaustive]
    Elected {
        /// The name of the election.
        election: &'a str,
    },
    /// This process leads no more: it has resigned, or the lock is lost.
    #[non_exhaustive]
    Ended {
        /// The name of the election.
        election: &'a str,
    },
    /// This process may run a job, from when the observer is set; its metrics can start at zero.
    #[non_exhaustive]
    Job {
        /// The name of the job, without its key.
        job: &'a str,
    },
    /// An attempt to run a job has ended.
    #[non_exhaustive]
    Once {
        /// The name of the job, without its key.
        job: &'a str,
        /// `busy`, `failed`, `ran`, `skipped` or `unrecorded` as [`OnceOutcome`](crate::OnceOutcome) has
        /// them, `lost` if the lock was lost while the job ran, or `error` if it could not begin. A job that
        /// panics has `failed`, a dropped future of [`Once::run`](crate::Once::run) `cancelled`, and a guard
        /// that is finished as [`RunOutcome::Unknown`](crate::RunOutcome::Unknown) `unknown`.
        outcome: &'static str,
    },
}

/// Tells the observer, if there is one.
pub(crate) fn emit(
    observer: Option<&Arc<dyn CoordinationObserver>>,
    event: &CoordinationEvent<'_>,
) {
    if let Some(observer) = observer {
        // It may be called in a destructor, and a broken one must not end a term.
        drop(catch_unwind(AssertUnwindSafe(|| observer.happened(event))));
    }
}
