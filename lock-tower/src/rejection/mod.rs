//! The response to a client whose request did not get its lock.

mod grpc;
mod responder;

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use polylock_core::{Error, LostReason};

use crate::held_lock::NotHeld;
use crate::keys::KeyError;
use crate::log_limit::PROCESS_LOG;

pub(crate) use self::grpc::{grpc_timeout, has_trailers, late_trailers, trailers};

pub use self::responder::{Format, ProblemDetails, RejectionResponder, RequestInfo};

/// Why a request was rejected.
///
/// A [`RejectionResponder`] makes the response, and [`retry_after`](Rejection::retry_after)
/// says whether a retry is worthwhile:
///
/// | reason | name | the handler | the same request again |
/// |---|---|---|---|
/// | [`Busy`](Reason::Busy) | `lock-busy` | has not run | later |
/// | [`InvalidKey`](Reason::InvalidKey) | `lock-key` | has not run | fails again |
/// | [`Lost`](Reason::Lost) | `lock-lost` | has run, how far is unknown | only if it is idempotent |
/// | [`Misconfigured`](Reason::Misconfigured) | `lock-misconfigured` | has not run | fails until the service is set up otherwise |
/// | [`QueueFull`](Reason::QueueFull) | `lock-queue-full` | has not run | later |
/// | [`TimedOut`](Reason::TimedOut) | `lock-timeout` | has not run | later |
/// | [`Unavailable`](Reason::Unavailable) | `lock-unavailable` | has not run | later |
///
/// "Has not run" is true for rejections by the layer and by [`Locker`](crate::Locker). A handler that
/// returns a rejection itself may have had effects before. The other reasons concern requests with an
/// `Idempotency-Key`; [`idempotency`](crate::idempotency) has their table.
///
/// The example of [`Locker`](crate::Locker) gets one.
#[derive(Clone, Debug)]
pub struct Rejection(Box<RejectionInner>);

#[derive(Clone, Debug)]
struct RejectionInner {
    reason: Reason,
    detail: Option<String>,
    error: Option<Error>,
    lost: Option<LostReason>,
    retry_after: Option<Duration>,
    response: Option<Response<Bytes>>,
}

/// The kind of a [`Rejection`].
///
/// The example of [`Locker`](crate::Locker) compares one.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reason {
    /// The body of a request with an `Idempotency-Key` is too large.
    BodyTooLarge,
    /// The body of a request with an `Idempotency-Key` broke off.
    BodyUnreadable,
    /// Another client holds the lock, and the request does not wait.
    Busy,
    /// The `Idempotency-Key` is invalid.
    IdempotencyKeyInvalid,
    /// The request has no `Idempotency-Key` and needs one.
    IdempotencyKeyMissing,
    /// Another request has had the same `Idempotency-Key`.
    IdempotencyKeyReused,
    /// The key of the request is missing or invalid.
    InvalidKey,
    /// The lock was lost while the handler ran; what it did is unknown.
    Lost,
    /// The service is misconfigured; neither the request nor the load is the cause.
    Misconfigured,
    /// The queue is full.
    QueueFull,
    /// The request was handled before, and its response was too large to be stored, or broke off.
    ResponseNotKept,
    /// The stored responses cannot be read.
    StoreUnavailable,
    /// Another client held the lock for as long as the request may wait.
    TimedOut,
    /// The lock service does not answer.
    Unavailable,
}

impl Reason {
    /// Why a lock is not acquired or held.
    pub(crate) const OF_LOCKS: [Self; 7] = [
        Self::Busy,
        Self::InvalidKey,
        Self::Lost,
        Self::Misconfigured,
        Self::QueueFull,
        Self::TimedOut,
        Self::Unavailable,
    ];

    /// Why a request with an `Idempotency-Key` is rejected, besides its lock.
    pub(crate) const OF_IDEMPOTENCY: [Self; 7] = [
        Self::BodyTooLarge,
        Self::BodyUnreadable,
        Self::IdempotencyKeyInvalid,
        Self::IdempotencyKeyMissing,
        Self::IdempotencyKeyReused,
        Self::ResponseNotKept,
        Self::StoreUnavailable,
    ];

    /// The name that clients see, as in `lock-busy`; it stays the same.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.texts().0
    }

    /// The name, one sentence, and what a client can do about it where the rejection says nothing
    /// closer.
    fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::BodyTooLarge => (
                "idempotency-body-too-large",
                "the request is too large",
                "the body is larger than requests with a key may be",
            ),
            Self::BodyUnreadable => (
                "idempotency-body-unreadable",
                "the body of the request did not arrive",
                "the connection ended before the body did",
            ),
            Self::Busy => (
                "lock-busy",
                "the lock is held",
                "another request with the same key holds it; if its server has failed, it is free when the lease ends",
            ),
            Self::IdempotencyKeyInvalid => (
                "idempotency-key-invalid",
                "the Idempotency-Key is invalid",
                "the same request fails again",
            ),
            Self::IdempotencyKeyMissing => (
                "idempotency-key-missing",
                "the Idempotency-Key is missing",
                "this operation needs an Idempotency-Key, new for each request",
            ),
            Self::IdempotencyKeyReused => (
                "idempotency-key-reused",
                "the Idempotency-Key is already used",
                "another request has been sent with this Idempotency-Key",
            ),
            Self::InvalidKey => (
                "lock-key",
                "the request does not name its lock",
                "the same request fails again",
            ),
            Self::Lost => (
                "lock-lost",
                "the lock was lost while the request was handled",
                "it is unknown what the request has done; look before you repeat it",
            ),
            Self::Misconfigured => (
                "lock-misconfigured",
                "the lock is not set up correctly",
                "the request is not at fault, and repeating it does not help",
            ),
            Self::QueueFull => (
                "lock-queue-full",
                "too many requests wait for locks",
                "the request can be repeated later",
            ),
            Self::ResponseNotKept => (
                "idempotency-response-not-kept",
                "the request has been handled",
                "the request has been handled before, and its response was too large to be kept, or incomplete",
            ),
            Self::StoreUnavailable => (
                "idempotency-store-unavailable",
                "the stored responses are unavailable",
                "it is not known whether the request has been handled before; it was not handled",
            ),
            Self::TimedOut => (
                "lock-timeout",
                "the lock was held for as long as the request may wait",
                "requests with the same key held it; if their server has failed, it is free when the lease ends",
            ),
            Self::Unavailable => (
                "lock-unavailable",
                "the lock service is unavailable",
                "the request can be repeated later",
            ),
        }
    }
}

/// One sentence.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)
    }
}

impl Rejection {
    /// Rejects for this reason.
    #[must_use]
    pub fn new(reason: Reason) -> Self {
        Self(Box::new(RejectionInner {
            reason,
            detail: None,
            error: None,
            lost: None,
            retry_after: None,
            response: None,
        }))
    }

    /// Adds a sentence for the client.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    pub(crate) fn with_error(mut self, error: Error) -> Self {
        self.0.error = Some(error);
        self
    }

    /// Sets the delay before a retry; without effect if the lock was lost.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// The kind.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// A sentence for the client, without the key.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// What the lock service reported. Not for the client: it names the key.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.0.error.as_ref()
    }

    /// Why the lock was lost, if it was.
    #[must_use]
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.lost
    }

    /// Returns the delay before a retry; `None` if the same request must not be repeated blindly.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after.filter(|_| self.0.reason != Reason::Lost)
    }

    /// The response that replaces that of the responder.
    pub(crate) fn response(&self) -> Option<&Response<Bytes>> {
        self.0.response.as_ref()
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.reason.fmt(f)?;
        match &self.0.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

impl StdError for Rejection {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error().map(|error| error as _)
    }
}

/// For handlers that check their lock.
impl From<NotHeld> for Rejection {
    fn from(not_held: NotHeld) -> Self {
        match not_held {
            NotHeld::Lost(reason) => {
                let mut rejection = Self::new(Reason::Lost);
                rejection.0.lost = Some(reason);
                rejection
            }
            NotHeld::Released => Self::new(Reason::Misconfigured),
            NotHeld::Unprotected => {
                Self::new(Reason::Unavailable).with_retry_after(DEFAULT_RETRY_AFTER)
            }
        }
    }
}

/// The default delay before a retry, the least that `Retry-After` can express.
pub(crate) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

const NO_KEY: &str = "no key can be read from a request";

/// For handlers that read a key themselves.
impl From<KeyError> for Rejection {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Invalid(detail) | KeyError::Missing(detail) => {
                Self::new(Reason::InvalidKey).with_detail(detail)
            }
            KeyError::Misconfigured(detail) => {
                if PROCESS_LOG.is_due(NO_KEY) {
                    tracing::error!(detail, "{NO_KEY}");
                }
                Self::new(Reason::Misconfigured)
            }
            KeyError::Response(response) => {
                let mut rejection = Self::new(Reason::InvalidKey);
                rejection.0.response = Some(*response);
                rejection
            }
        }
    }
}

/// Observes requests that are rejected because of their lock, for metrics.
///
/// Called where the answer is made, once for each: it must return quickly and not block. A panic is
/// caught and changes nothing for the client.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use polylock_core::memory::Memory;
/// use polylock_tower::{Locker, RejectedRequest, RejectionObserver};
///
/// #[derive(Debug, Default)]
/// struct Counters {
///     possible: AtomicUsize,
///     rejected: AtomicUsize,
/// }
///
/// impl RejectionObserver for Counters {
///     fn rejected(&self, rejected: &RejectedRequest<'_>) {
///         println!("{}: {} {}", rejected.class, rejected.status, rejected.reason);
///         self.rejected.fetch_add(1, Ordering::Relaxed);
///     }
///
///     fn announced(&self, _: &RejectedRequest<'_>) {
///         self.possible.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let counters = Arc::new(Counters::default());
/// let accounts = Locker::builder(Arc::new(Memory::new()), "accounts");
/// let accounts = accounts.rejection_observer(counters.clone()).build()?;
/// # let _ = accounts;
/// assert_eq!(counters.possible.load(Ordering::Relaxed), 7);
/// # Ok(()) }
/// ```
pub trait RejectionObserver: fmt::Debug + Send + Sync + 'static {
    /// Counts a rejected request.
    fn rejected(&self, rejected: &RejectedRequest<'_>);

    /// Announces a possible rejection, so that its counter can start at zero. Called when the
    /// locker is built, for each [`Reason`] that concerns a lock, and when an
    /// [`IdempotencyLayer`](crate::idempotency::IdempotencyLayer) is made, for the others, with the status that
    /// [`ProblemDetails::new`] gives it. By default it does nothing.
    fn announced(&self, possible: &RejectedRequest<'_>) {
        let _ = possible;
    }
}

/// A request that the layer answered instead of its handler.
///
/// The example of [`RejectionObserver`] counts them.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct RejectedRequest<'a> {
    /// The class of the locks, which is the namespace of the locker unless set otherwise.
    pub class: &'a str,
    /// Why, as [`Reason::as_str`] has it, such as `"lock-busy"`.
    pub reason: &'static str,
    /// The status of the answer; 200 for gRPC, which has its own in a header. Calls behind a
    /// [`CallLockLayer`](crate::plain::CallLockLayer) have the status that [`ProblemDetails::new`] gives the
    /// reason.
    pub status: StatusCode,
}
