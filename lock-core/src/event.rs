//! Lock events, for observers and the log.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::key::LockKey;
use crate::lost_reason::LostReason;
use crate::mode::{Mode, Wait};
use crate::token::FencingToken;

/// Receives the events of locks, for metrics and audits.
///
/// Called on the thread of the event, also on the scheduler's: it must return quickly and not
/// block. A panic is caught and does not affect the lock.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use polylock_core::layers::{Event, EventKind, Observe, Observer};
/// use polylock_core::memory::Memory;
/// use polylock_core::prelude::*;
///
/// #[derive(Debug, Default)]
/// struct Grants(AtomicUsize);
///
/// impl Observer for Grants {
///     fn event(&self, event: &Event<'_>) {
///         if let EventKind::Acquired { waited, .. } = event.kind {
///             println!("{} after {waited:?}", event.key);
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let grants = Arc::new(Grants::default());
/// let locks = Observe::new(Arc::new(Memory::new())).with_observer(grants.clone());
/// locks.lock("orders/42").await?.release().await?;
/// assert_eq!(grants.0.load(Ordering::Relaxed), 1);
/// # Ok(()) }
/// ```
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Takes note of an event.
    fn event(&self, event: &Event<'_>);
}

/// Something that happened to a lock.
///
/// The example of [`Observer`] counts events of one kind.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Name of the backend, such as `"sqlite"`.
    pub backend: &'static str,
    /// The kind of work that the request named.
    pub class: Option<&'a str>,
    /// The key; of unbounded number, so no label for metrics.
    pub key: &'a LockKey,
    /// The mode that was requested.
    pub mode: Mode,
    /// How long the request may wait, for events of a request: it was made, granted, dropped or
    /// refused.
    pub wait: Option<Wait>,
    /// What happened.
    pub kind: EventKind<'a>,
}

impl Event<'_> {
    /// How a request ended, in one word: `acquired`, `busy` if the lock was not free at once and the
    /// request does not or may not wait, `cancelled`, `error`, or `timeout` if the lock was still held at the
    /// end of the wait.
    #[must_use]
    pub fn outcome(&self) -> Option<&'static str> {
        outcome(self.wait?, &self.kind)
    }
}

pub(crate) fn outcome(wait: Wait, kind: &EventKind<'_>) -> Option<&'static str> {
    match kind {
        EventKind::Acquired { .. } => Some("acquired"),
        EventKind::Cancelled { .. } => Some("cancelled"),
        EventKind::Failed { error, .. } => Some(match error.kind() {
            ErrorKind::Contended if wait.waits() => "timeout",
            ErrorKind::Contended | ErrorKind::QueueFull => "busy",
            _ => "error",
        }),
        _ => None,
    }
}

/// What happened to a lock.
///
/// The example of [`Observer`] matches it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub enum EventKind<'a> {
    /// A request was made.
    Requested,
    /// A request was granted, after this time.
    Acquired {
        /// Time since the request was made.
        waited: Duration,
        /// The token of the new holder.
        token: Option<FencingToken>,
    },
    /// The future of a request was dropped, after this time.
    Cancelled {
        /// Time since the request was made.
        waited: Duration,
    },
    /// A request was refused or failed, after this time.
    Failed {
        /// Time since the request was made.
        waited: Duration,
        /// What was reported.
        error: &'a Error,
    },
    /// The process holds the lock: one `GivenUp` or `Lost` follows.
    ///
    /// Sent per holder, not per guard: the guards of one owner are one holder. It is also sent if
    /// the caller has stopped waiting when the grant arrives. A lock that is lost while it is
    /// granted may send `Lost` first.
    Held,
    /// The holder is done: the lock is released, or handed over in this process.
    GivenUp {
        /// Time since it was acquired.
        held: Duration,
    },
    /// The lock was lost.
    Lost {
        /// Why.
        reason: LostReason,
        /// Time since it was acquired.
        held: Duration,
    },
    /// The outcome of a lock whose holder is done.
    Released {
        /// Time since it was acquired, release included.
        held: Duration,
        /// `released`, `handed_over`, `expiring`, `abandoned`, `ticket` if it is on its way to another
        /// process, `already_lost` or `failed`.
        outcome: &'static str,
        /// Time since the holder was done; `None` if the lock was lost before.
        took: Option<Duration>,
    },
    /// The lease was renewed.
    Renewed {
        /// Validity that the lease has now.
        slack: Duration,
        /// Validity that was left when the lease was renewed.
        left: Duration,
    },
    /// A renewal failed; it is tried again while the lease is valid.
    RenewalFailed {
        /// What went wrong.
        error: &'a Error,
        /// Failed renewals of the lock since the last that succeeded, this one included.
        failures: u32,
    },
    /// The server could not grant the lock at this attempt, and the backend knows the reason. Comes at each such
    /// attempt, for the request that began it: requests behind that one in a local queue get none.
    Unavailable {
        /// What the server or the client says.
        why: &'a str,
    },
}

/// Tells the observer of a request, if it has one, and the log.
pub(crate) struct EventEmitter {
    pub(crate) backend: &'static str,
    pub(crate) key: LockKey,
    pub(crate) class: Option<Arc<str>>,
    pub(crate) mode: Mode,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl EventEmitter {
    pub(crate) fn emit(&self, kind: EventKind<'_>) {
        self.tell_of(None, kind);
    }

    /// A subscriber of the log or an observer that panics must not break the lock, and this may run in
    /// a destructor.
    pub(crate) fn tell_of(&self, wait: Option<Wait>, kind: EventKind<'_>) {
        drop(catch_unwind(AssertUnwindSafe(|| self.log(&kind))));
        if let Some(observer) = &self.observer {
            let event = Event {
                backend: self.backend,
                class: self.class.as_deref(),
                key: &self.key,
                mode: self.mode,
                wait,
                kind,
            };
            drop(catch_unwind(AssertUnwindSafe(|| observer.event(&event))));
        }
    }

    fn log(&self, kind: &EventKind<'_>) {
        let Self { backend, key, .. } = self;
        match kind {
            EventKind::Lost { reason, held } => {
                tracing::warn!(backend, %key, reason = reason.as_str(), ?held, "lock lost");
            }
            // A process may hold thousands of locks during an outage, and tries each again every few seconds.
            EventKind::RenewalFailed { error, failures: 1 } => {
                tracing::warn!(backend, %key, %error, "renewal failed");
            }
            EventKind::RenewalFailed { error, failures } => {
                tracing::debug!(backend, %key, failures, %error, "renewal failed again");
            }
            // No `Lost` came before: the holder gave the lock up in time.
            EventKind::Released {
                held,
                outcome: "already_lost",
                took: Some(_),
            } => {
                tracing::warn!(backend, %key, ?held, "the release found the lock lost");
            }
            EventKind::Released { held, outcome, .. } => {
                tracing::debug!(backend, %key, outcome, ?held, "lock released");
            }
            EventKind::Renewed { slack, left } => {
                tracing::trace!(backend, %key, ?slack, ?left, "lock renewed");
            }
            _ => {}
        }
    }
}
