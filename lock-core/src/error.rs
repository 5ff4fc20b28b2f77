use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::holder::HolderInfo;
use crate::key::LockKey;
use crate::lost_reason::LostReason;
use crate::mode::Wait;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Anything that goes wrong with a lock.
///
/// Match on [`kind`](Error::kind); ask [`is_retryable`](Error::is_retryable) and
/// [`is_outcome_unknown`](Error::is_outcome_unknown) before repeating a call.
///
/// # Display
///
/// `Display` prints this level only, together with the backend, the holder and the key where they
/// are known; [`source`](StdError::source) has the rest. No message contains a password or a full URL.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let _held = locks.lock("orders/42").await?;
///
/// let second = locks.lock_within("orders/42", Duration::from_millis(10)).await;
/// let error = second.expect_err("the lock is held");
/// assert_eq!(error.kind(), ErrorKind::Contended);
/// assert!(error.is_retryable() && !error.is_outcome_unknown());
/// assert!(error.holder().is_some()); // the host and the process
/// println!("{error}"); // memory: the lock is held, waited 10ms; held by etl-7c9 (pid 4121) ...
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Error(Box<ErrorInner>);

#[derive(Clone)]
struct ErrorInner {
    kind: ErrorKind,
    message: String,
    backend: Option<&'static str>,
    key: Option<LockKey>,
    holder: Option<Box<HolderInfo>>,
    lost: Option<LostReason>,
    outcome_unknown: bool,
    /// Shared, so that one failure can be the answer to many requests.
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What an [`Error`] means for the caller.
///
/// # Examples
///
/// ```
/// use polylock_core::prelude::*;
///
/// fn http_status(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::Contended => 409,
///         ErrorKind::InvalidKey => 400,
///         ErrorKind::QueueFull => 429,
///         ErrorKind::Unavailable => 503,
///         _ => 500, // there are others, and there may be more
///     }
/// }
///
/// let error = LockKey::new("").expect_err("a key is not empty");
/// assert_eq!(http_status(&error), 400);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ErrorKind {
    /// Another client holds the lock, and the request timed out.
    Contended,
    /// The server refuses these credentials, or they lack a permission.
    Denied,
    /// Something other than a lock is stored in the place of the lock; the message names it, and how
    /// to remove it.
    Foreign,
    /// A URL, an option or a configuration is wrong.
    InvalidConfig,
    /// The name is not a lock key.
    InvalidKey,
    /// A duration or another value of the request is out of its range.
    InvalidRequest,
    /// A held lock was lost; [`Error::lost_reason`] says why. For a ticket whose lease has ended there
    /// is no reason.
    Lost,
    /// The client does not understand the reply of the server.
    Protocol,
    /// This process has no room for the request: the local queue for the key is full, or all connections are in use
    /// for other locks.
    QueueFull,
    /// The server cannot be reached or does not answer in time.
    Unavailable,
    /// The backend or the stack of layers lacks what the request needs.
    Unsupported,
}

impl Error {
    /// Makes an error of the given kind. For backends and layers.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorInner {
            kind,
            message: message.into(),
            backend: None,
            key: None,
            holder: None,
            lost: None,
            outcome_unknown: false,
            source: None,
        }))
    }

    /// Makes the error of a holder that lost its lock.
    #[must_use]
    pub fn lost(reason: LostReason) -> Self {
        let mut error = Self::new(ErrorKind::Lost, format!("the lock was lost: {reason}"));
        error.0.lost = Some(reason);
        error
    }

    /// Makes the error of a request that timed out while the lock was held. For backends and layers.
    #[must_use]
    pub fn contended(wait: Wait) -> Self {
        let message = format!("the lock is held{}", wait.waited());
        Self::new(ErrorKind::Contended, message)
    }

    pub(crate) fn invalid_key(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidKey, message)
    }

    /// Makes the error of a wrong configuration or URL. For backends and layers.
    #[must_use]
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidConfig, message)
    }

    /// Names the backend that the error comes from, unless one is named already.
    #[must_use]
    pub fn with_backend(mut self, backend: &'static str) -> Self {
        self.0.backend.get_or_insert(backend);
        self
    }

    /// Names the key of the call, in place of the key of an inner layer.
    #[must_use]
    pub fn with_key(mut self, key: &LockKey) -> Self {
        self.0.key = Some(key.clone());
        self
    }

    /// Names the holder that blocked the call.
    #[must_use]
    pub fn with_holder(mut self, holder: HolderInfo) -> Self {
        self.0.holder = Some(Box::new(holder));
        self
    }

    /// States that the server may have acted although the call failed.
    #[must_use]
    pub fn with_unknown_outcome(mut self) -> Self {
        self.0.outcome_unknown = true;
        self
    }

    /// Attaches what caused the error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// The category, for `match`, exit codes and statuses.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later without a change of the configuration.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.0.kind {
            ErrorKind::Contended
            | ErrorKind::Lost
            | ErrorKind::QueueFull
            | ErrorKind::Unavailable => true,
            ErrorKind::Denied
            | ErrorKind::Foreign
            | ErrorKind::InvalidConfig
            | ErrorKind::InvalidKey
            | ErrorKind::InvalidRequest
            | ErrorKind::Protocol
            | ErrorKind::Unsupported => false,
        }
    }

    /// Whether the server may have acted although the call failed.
    ///
    /// An acquisition with an unknown outcome is undone in the background; a repeated release is
    /// harmless.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        self.0.outcome_unknown
    }

    /// The backend that the error comes from, such as `"sqlite"`.
    #[must_use]
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// The key that the call was about.
    #[must_use]
    pub fn key(&self) -> Option<&LockKey> {
        self.0.key.as_ref()
    }

    /// The holder just after a wait has timed out, as the server knew it; the first of several.
    ///
    /// [`RequestBuilder::acquire`](crate::RequestBuilder::acquire) and functions built on it look it
    /// up after a timeout. `None` if the lock was free by then, if the server did not reply in time,
    /// or without a lookup.
    #[must_use]
    pub fn holder(&self) -> Option<&HolderInfo> {
        self.0.holder.as_deref()
    }

    /// Why the lock was lost, if it was.
    #[must_use]
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.lost
    }

    /// The message alone, without backend and key.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = self.0.backend {
            write!(f, "{backend}: ")?;
        }
        f.write_str(&self.0.message)?;
        if let Some(holder) = &self.0.holder {
            write!(f, "; held by {holder}")?;
        }
        if let Some(key) = &self.0.key {
            write!(f, " (key {key:?})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        let mut out = f.debug_struct("Error");
        out.field("kind", &inner.kind)
            .field("message", &inner.message);
        if let Some(backend) = inner.backend {
            out.field("backend", &backend);
        }
        if let Some(key) = &inner.key {
            out.field("key", key);
        }
        if let Some(holder) = &inner.holder {
            out.field("holder", holder);
        }
        if inner.outcome_unknown {
            out.field("outcome_unknown", &true);
        }
        if let Some(source) = &inner.source {
            out.field("source", source);
        }
        out.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}
