use std::time::Duration;

use async_trait::async_trait;
use polylock_core::{FencingToken, LockKey};

use super::StoredResponse;

use crate::layer::BoxError;

/// Stores responses until they expire.
///
/// # For implementors
///
/// The holder of the key's lock calls [`put`](Self::put). It must be atomic all the same, because a holder
/// that has lost the lock may call it late.
///
/// # Examples
///
/// What every store does:
///
/// ```
/// use std::time::Duration;
///
/// use http::Response;
/// use polylock_core::LockKey;
/// use polylock_tower::idempotency::{MemoryResponses, Put, ResponseStore as _, StoredResponse};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (store, key) = (MemoryResponses::new(), LockKey::new("payments:8e03")?);
/// let response = Response::new(Some("paid".into()));
/// let of_execution = |id| StoredResponse::new(id, [7; 32], &response);
/// let day = Duration::from_secs(24 * 60 * 60);
/// assert_eq!(store.put(&key, &of_execution(1), None, day).await?, Put::Stored);
/// assert_eq!(store.put(&key, &of_execution(1), None, day).await?, Put::Stored); // a repetition
/// assert_eq!(store.put(&key, &of_execution(2), None, day).await?, Put::Refused);
/// assert_eq!(store.get(&key).await?, Some(of_execution(1)));
///
/// let bytes = of_execution(1).to_bytes(); // for a store that keeps bytes
/// assert_eq!(StoredResponse::from_bytes(bytes)?, of_execution(1));
/// # Ok(()) }
/// ```
#[async_trait]
pub trait ResponseStore: Send + Sync + 'static {
    /// Finds the response of a key, unless it has expired.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read; the request is answered with 503 then.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    async fn get(&self, key: &LockKey) -> Result<Option<StoredResponse>, StoreError>;

    /// Stores a response for `retention`.
    ///
    /// If an unexpired response exists, nothing is changed and [`Put::beside`] gives the result. The token
    /// does not affect the result; stores may record it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the response is not stored, or if that is unknown.
    ///
    /// # Cancel safety
    ///
    /// The response may be stored.
    async fn put(
        &self,
        key: &LockKey,
        response: &StoredResponse,
        token: Option<FencingToken>,
        retention: Duration,
    ) -> Result<Put, StoreError>;
}

/// The outcome of storing a response.
///
/// The example of [`ResponseStore`] has both.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Put {
    /// Another response is stored. For `SqlResponses::put_in`, it may be of the same execution.
    Refused,
    /// The response is stored.
    Stored,
}

impl Put {
    /// Returns the outcome for a response that finds an existing one. If both come from one execution of
    /// the handler, the call is a repetition and counts as stored.
    #[must_use]
    pub fn beside(there: &StoredResponse, ours: &StoredResponse) -> Self {
        match there.execution_id == ours.execution_id {
            true => Self::Stored,
            false => Self::Refused,
        }
    }
}

/// Max attempts of a `put` that can neither store nor find a response, because other clients put or purge
/// in between.
#[cfg(any(feature = "redis", feature = "_sql"))]
pub(super) const MAX_ATTEMPTS: usize = 8;

/// Refuses parameters that the client of a server does not know, because clients ignore them, or log their
/// values. `method` separates services in place of a namespace.
#[cfg(any(feature = "redis", feature = "_sql"))]
pub(super) fn check_parameters(
    url: &str,
    is_known: impl Fn(&str) -> bool,
    server: &str,
    method: &str,
) -> Result<(), StoreError> {
    let (_, query) = url.split_once('?').unwrap_or_default();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut names = pairs.map(|pair| {
        let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
        percent_encoding::percent_decode_str(name).decode_utf8_lossy()
    });
    let Some(name) = names.find(|name| !is_known(name)) else {
        return Ok(());
    };
    // A question mark in a password begins a query as well.
    let has_secret = query.contains('@');
    Err(StoreError::new(match &*name {
        "namespace" => {
            format!("the URL of {server} for responses has no `namespace`: call `{method}`")
        }
        name if !has_secret => {
            format!("the URL of {server} for responses has no parameter `{name}`")
        }
        _ => format!("the URL of {server} for responses has an unknown parameter"),
    }))
}

/// An error of a response store.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    message: String,
    source: Option<BoxError>,
}

impl StoreError {
    /// Says what failed. It is logged, and the client does not see it.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
        }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    #[cfg(any(feature = "redis", feature = "_sql"))]
    pub(super) fn caused_by<E: Into<BoxError>>(message: &'static str) -> impl Fn(E) -> Self + Copy {
        move |source| Self::new(message).with_source(source)
    }
}
