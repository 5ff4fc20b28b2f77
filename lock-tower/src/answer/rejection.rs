use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use lock_core::{Error, LostReason};

use crate::held::NotHeld;

/// Why a request did not get what it needs a lock for.
///
/// An [`Answer`](crate::Answer) makes the response, and [`retry_after`](Rejection::retry_after)
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
/// "Has not run" is said of rejections by the layer and by [`Locker`](crate::Locker): a handler that
/// returns one itself may have done something before.
#[derive(Clone, Debug)]
pub struct Rejection(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    reason: Reason,
    detail: Option<String>,
    error: Option<Error>,
    lost: Option<LostReason>,
    retry_after: Option<Duration>,
    response: Option<Response<Bytes>>,
}

/// The kind of a [`Rejection`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reason {
    /// Another client holds the lock, and the request does not wait.
    Busy,
    /// What the request says cannot be a key, or it does not say it.
    InvalidKey,
    /// The lock was lost while the handler ran; what it did is unknown.
    Lost,
    /// Neither the request nor the load is the cause, but how the service is set up.
    Misconfigured,
    /// As many wait as may.
    QueueFull,
    /// Another client held the lock for as long as the request may wait.
    TimedOut,
    /// The lock service does not answer.
    Unavailable,
}

impl Reason {
    pub(crate) const ALL: [Self; 7] = [
        Self::Busy,
        Self::InvalidKey,
        Self::Lost,
        Self::Misconfigured,
        Self::QueueFull,
        Self::TimedOut,
        Self::Unavailable,
    ];

    /// The name that clients see, as in `lock-busy`; it stays the same.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "lock-busy",
            Self::InvalidKey => "lock-key",
            Self::Lost => "lock-lost",
            Self::Misconfigured => "lock-misconfigured",
            Self::QueueFull => "lock-queue-full",
            Self::TimedOut => "lock-timeout",
            Self::Unavailable => "lock-unavailable",
        }
    }
}

/// One sentence.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the lock is held",
            Self::InvalidKey => "the request does not name its lock",
            Self::Lost => "the lock was lost while the request was handled",
            Self::Misconfigured => "the lock is not set up correctly",
            Self::QueueFull => "too many requests wait for locks",
            Self::TimedOut => "the lock was held for as long as the request may wait",
            Self::Unavailable => "the lock service is unavailable",
        })
    }
}

impl Rejection {
    /// Rejects for this reason.
    #[must_use]
    pub fn new(reason: Reason) -> Self {
        Self(Box::new(Inner {
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

    pub(crate) fn with_lost(mut self, reason: LostReason) -> Self {
        self.0.lost = Some(reason);
        self
    }

    /// Adds when it is worth another try; without effect if the lock was lost.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    pub(crate) fn with_response(mut self, response: Response<Bytes>) -> Self {
        self.0.response = Some(response);
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

    /// When it is worth another try; `None` if the same request must not be repeated blindly.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after.filter(|_| self.0.reason != Reason::Lost)
    }

    /// The answer that a key extractor has given in place of a key.
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
        self.0
            .error
            .as_ref()
            .map(|error| error as &(dyn StdError + 'static))
    }
}

/// For a handler that looks at its lock.
impl From<NotHeld> for Rejection {
    fn from(not_held: NotHeld) -> Self {
        match not_held {
            NotHeld::Lost(reason) => Self::new(Reason::Lost).with_lost(reason),
            NotHeld::Released => Self::new(Reason::Misconfigured),
            NotHeld::Unprotected => Self::new(Reason::Unavailable),
        }
    }
}
