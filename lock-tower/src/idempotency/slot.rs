use std::time::Duration;

use bytes::Bytes;
use http::Response;
use lock_core::{FencingToken, LockKey};

use super::{Fingerprint, RunId, StoredResponse};

/// Where the response of a request will be stored; in the extensions of the request.
///
/// For handlers that store their response in the transaction of its effect: then one is there if and
/// only if the other is. What the layer stores afterwards is known by its [`RunId`] for the same, and
/// changes nothing; after a rollback it is stored then.
#[derive(Clone, Debug)]
pub struct ResponseSlot {
    pub(super) key: LockKey,
    pub(super) fingerprint: Fingerprint,
    pub(super) run: RunId,
    pub(super) token: Option<FencingToken>,
    pub(super) retention: Duration,
}

impl ResponseSlot {
    /// Under which key.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Which request it answers.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The request that stores it.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The token of the lock; `None` if the backend has none, or the request is unprotected.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.token
    }

    /// For how long.
    #[must_use]
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// What to store of a response.
    #[must_use]
    pub fn stored(&self, response: &Response<Bytes>) -> StoredResponse {
        self.stored_of(&response.clone().map(Some))
    }

    pub(super) fn stored_of(&self, response: &Response<Option<Bytes>>) -> StoredResponse {
        StoredResponse::new(self.fingerprint, response).of_run(self.run)
    }
}
