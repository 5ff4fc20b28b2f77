use std::time::Duration;

use async_trait::async_trait;
use lock_core::{FencingToken, LockKey};

use super::StoredResponse;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Keeps responses for their time.
///
/// # For implementors
///
/// The holder of the key's lock calls [`put`](Self::put); it decides in one step all the same,
/// because a holder that has lost the lock may call it late.
#[async_trait]
pub trait ResponseStore: Send + Sync + 'static {
    /// Finds the response of a key, unless its time is over.
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
    /// Refused if there is one whose time is not over. If that is of the same
    /// [run](StoredResponse::run), the call is a repetition: nothing is changed, and it counts as
    /// stored. The token decides nothing; it is for stores that keep record of it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it is not stored, or that is unknown.
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

/// What became of a response.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Put {
    /// There is another one.
    Refused,
    /// It is stored.
    Stored,
}

/// A store of responses does not work.
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
}
