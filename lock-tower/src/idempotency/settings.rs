use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use lock_core::LockKey;

use crate::answer::{Answer, Asked, Problem, Reason, Rejection};
use crate::keys::{IdempotencyKey, KeyError, KeyExtractor as _, Keys, join};
use crate::layer::OnDisconnect;
use crate::locker::{Locker, no_key};

use super::body::IdempotencyBody;
use super::fingerprint::Fingerprint;
use super::layer::Missing;
use super::refusal::Refusal;
use super::scope::KeyScope;
use super::slot::ResponseSlot;
use super::store::{Put, ResponseStore, StoreError};
use super::stored::StoredResponse;

/// The settings of a layer. All services of it share one.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) locker: Locker,
    pub(super) store: Arc<dyn ResponseStore>,
    pub(super) methods: Vec<Method>,
    pub(super) scope: KeyScope,
    pub(super) missing: Missing,
    pub(super) stored: Arc<Stored>,
    pub(super) retention: Duration,
    pub(super) max_request: usize,
    pub(super) max_response: usize,
    pub(super) store_timeout: Duration,
    pub(super) on_disconnect: OnDisconnect,
    pub(super) answer: Arc<dyn Answer>,
}

type Stored = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;

/// Why the handler does not run.
pub(super) enum Refused {
    Lock(Rejection),
    Request(Refusal),
}

impl Settings {
    pub(super) fn new(locker: Locker, store: Arc<dyn ResponseStore>, scope: KeyScope) -> Self {
        Self {
            locker,
            store,
            methods: vec![Method::POST, Method::PATCH],
            scope,
            missing: Missing::default(),
            stored: Arc::new(is_final),
            retention: Duration::from_secs(24 * 60 * 60),
            max_request: 1 << 20,
            max_response: 1 << 20,
            store_timeout: Duration::from_secs(5),
            on_disconnect: OnDisconnect::RunToCompletion,
            answer: Arc::new(Problem::new()),
        }
    }

    /// The name of the lock; `None` if the request passes.
    pub(super) fn name(&self, parts: &Parts) -> Result<Option<String>, Refused> {
        if !self.methods.contains(&parts.method) {
            return Ok(None);
        }
        let key = match IdempotencyKey::new().keys(parts) {
            Ok(Keys::One(key)) => key,
            Err(KeyError::Missing(_)) if self.missing == Missing::Reject => {
                return Err(Refused::Request(Refusal::KeyMissing));
            }
            Err(KeyError::Missing(_)) => return Ok(None),
            Ok(Keys::Many(_) | Keys::Skip) => {
                let error = KeyError::Misconfigured("an Idempotency-Key is one key".to_owned());
                return Err(Refused::Lock(no_key(error)));
            }
            Err(error) => return Err(Refused::Request(Refusal::KeyInvalid(error.to_string()))),
        };
        let scope = self.scope.of(parts);
        let scope = scope.map_err(|error| Refused::Lock(no_key(error)))?;
        Ok(Some(join([scope, key])))
    }

    /// The answer to a request that has been handled; `None` if it has not.
    pub(super) async fn look<B>(
        &self,
        key: &LockKey,
        fingerprint: Fingerprint,
    ) -> Result<Option<Response<IdempotencyBody<B>>>, Refusal> {
        match self.in_time(self.store.get(key)).await {
            Ok(None) => Ok(None),
            Ok(Some(stored)) if stored.fingerprint() != fingerprint => Err(Refusal::KeyReused),
            Ok(Some(stored)) => {
                let replayed = stored.replay().ok_or(Refusal::ResponseNotKept)?;
                Ok(Some(
                    replayed.map(|body| IdempotencyBody::whole(body, None)),
                ))
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "{UNREADABLE}");
                Err(Refusal::StoreUnavailable)
            }
        }
    }

    /// Stores a response. The client gets it whether or not the store works: the handler has run.
    pub(super) async fn keep(
        &self,
        slot: &ResponseSlot,
        head: &http::response::Parts,
        body: Option<Bytes>,
    ) -> Put {
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        response.headers_mut().clone_from(&head.headers);
        let stored = slot.stored_of(&response);
        match self.in_time(self.put(slot, &stored)).await {
            Ok(put) => put,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "{UNWRITTEN}");
                Put::Stored
            }
        }
    }

    /// Tries several times: a request without a stored response is handled again. A retry that
    /// finds the response of an earlier try counts as stored.
    async fn put(&self, slot: &ResponseSlot, stored: &StoredResponse) -> Result<Put, StoreError> {
        let mut pauses = PAUSES.iter();
        loop {
            let (token, retention) = (slot.token, slot.retention);
            let error = match self.store.put(&slot.key, stored, token, retention).await {
                Ok(put) => return Ok(put),
                Err(error) => error,
            };
            let pause = pauses.next().ok_or(error)?;
            tokio::time::sleep(Duration::from_millis(*pause)).await;
        }
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let done = tokio::time::timeout(self.store_timeout, work).await;
        done.unwrap_or_else(|_| Err(StoreError::new("the store does not answer in time")))
    }

    pub(super) fn refuse<B>(
        &self,
        asked: &Asked,
        refused: Refused,
    ) -> Response<IdempotencyBody<B>> {
        let (reason, answer) = match refused {
            Refused::Request(refusal) => (refusal.name(), refusal.answer()),
            Refused::Lock(rejection) => {
                let reason = rejection.reason().as_str();
                let answer = match rejection.response() {
                    Some(response) => response.clone(),
                    None => self.answer.answer(asked, &explained(rejection)),
                };
                (reason, answer)
            }
        };
        self.locker.tell_refused(reason, answer.status());
        answer.map(|body| IdempotencyBody::whole(body, None))
    }
}

/// Between the tries to store a response, in milliseconds; the client waits for them.
const PAUSES: [u64; 4] = [50, 100, 200, 400];
const UNREADABLE: &str = "stored responses cannot be read, a request is refused";
const UNWRITTEN: &str = "a response is not stored, a repetition of its request is handled again";

/// Whether a response is one, and not a request to come again, with other credentials or later.
fn is_final(status: StatusCode, headers: &HeaderMap) -> bool {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => false,
        status if status.is_client_error() => !headers.contains_key(RETRY_AFTER),
        status => !status.is_server_error(),
    }
}

/// Says what a lock that is held means here.
fn explained(rejection: Rejection) -> Rejection {
    match rejection.reason() {
        Reason::Busy | Reason::TimedOut if rejection.detail().is_none() => rejection.with_detail(
            "a request with this Idempotency-Key is being handled, or its server has failed",
        ),
        _ => rejection,
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("locker", &self.locker)
            .field("methods", &self.methods)
            .field("scope", &self.scope)
            .field("missing", &self.missing)
            .field("retention", &self.retention)
            .field("max_request", &self.max_request)
            .field("max_response", &self.max_response)
            .field("store_timeout", &self.store_timeout)
            .field("on_disconnect", &self.on_disconnect)
            .finish_non_exhaustive()
    }
}
