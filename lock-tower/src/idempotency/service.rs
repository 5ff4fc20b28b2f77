use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use polylock_core::LockKey;
use tower_service::Service;

use crate::held::HeldLock;
use crate::keys::{KeyError, join};
use crate::layer::{BoxError, CommonOptions, LockBody};
use crate::locker::LockerGuard;
use crate::locker::key_rejection;
use crate::rejection::{Reason, Rejection, RequestInfo};
use crate::service::{ResponseFuture, call};

use super::buffer::{Buffered, read_request, read_response};
use super::ids::{ExecutionId, Fingerprint};
use super::key::idempotency_key;
use super::layer::{IdempotencyOptions, MissingKey};
use super::reason::{IdempotencyReason, IdempotencyRefusal};
use super::store::{Put, StoreError};
use super::stored::{PendingResponse, StoredResponse};

/// The service that [`IdempotencyLayer`](super::IdempotencyLayer) makes.
///
/// Clones share the queue and the store. It answers what it refuses by itself and has the error of
/// the inner service, which gets the body of the request in one piece.
#[derive(Clone, Debug)]
pub struct Idempotency<S> {
    inner: S,
    options: Arc<IdempotencyOptions>,
}

impl<S> Idempotency<S> {
    pub(super) fn new(inner: S, options: Arc<IdempotencyOptions>) -> Self {
        Self { inner, options }
    }
}

impl<S, ReqB, ResB> Service<Request<ReqB>> for Idempotency<S>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqB: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send + 'static,
    ResB: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<LockBody<ResB>>;
    type Error = S::Error;
    type Future = ResponseFuture<Self::Response, S::Error>;

    /// Always ready; the inner service is asked when the lock is held.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        let (options, inner) = (Arc::clone(&self.options), self.inner.clone());
        ResponseFuture::new(serve(options, inner, request))
    }
}

type Served<B, E> = Result<Response<LockBody<B>>, E>;

async fn serve<S, ReqB, ResB>(
    options: Arc<IdempotencyOptions>,
    inner: S,
    request: Request<ReqB>,
) -> Served<ResB, S::Error>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqB: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send + 'static,
    ResB: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let (parts, body) = request.into_parts();
    let info = RequestInfo::of(&parts);
    let name = match options.name(&parts) {
        Ok(Some(name)) => name,
        Ok(None) => {
            let response = call(inner, Request::from_parts(parts, body)).await?;
            return Ok(response.map(LockBody::inner));
        }
        Err(rejected) => return Ok(options.reject(&info, rejected)),
    };
    let body = match read_request(body, options.max_request).await {
        Ok(body) => body,
        Err(reason) => return Ok(options.reject(&info, reason)),
    };
    let fingerprint = Fingerprint::of(&parts, &body);
    let (key, held) = match enter(&options, &name, fingerprint).await {
        Ok(Entered::Held(key, held)) => (key, held),
        Ok(Entered::Handled(response)) => return Ok(*response),
        Err(rejected) => return Ok(options.reject(&info, rejected)),
    };
    // Dropped with the work, it releases the lock although the handler may have kept a clone.
    let guard = LockerGuard::new(held);
    let pending = PendingResponse {
        key,
        fingerprint,
        execution_id: ExecutionId::random(),
        fencing_token: guard.fencing_token(),
        retention: options.retention,
    };
    let on_disconnect = options.common.on_disconnect;
    let work = async move { once(&options, &info, inner, (parts, body), pending, guard).await };
    CommonOptions::run(on_disconnect, work).await
}

enum Entered<B> {
    Handled(Box<Response<LockBody<B>>>),
    Held(LockKey, HeldLock),
}

/// Acquires the lock. A request that does not get it still looks for a response: the holder of the
/// lock may be replaying it, and replays need no lock service. If too many wait already, it does
/// not look: the store needs its capacity for the responses of handled requests.
async fn enter<B>(
    options: &IdempotencyOptions,
    name: &str,
    fingerprint: Fingerprint,
) -> Result<Entered<B>, IdempotencyRefusal> {
    let key = options.common.locker.key(name)?;
    let rejection = match options.common.locker.acquire_key(key.clone()).await {
        Ok(held) => return Ok(Entered::Held(key, held)),
        Err(rejection) if rejection.reason() == Reason::QueueFull => return Err(rejection.into()),
        Err(rejection) => rejection,
    };
    match options.look(&key, fingerprint).await {
        Ok(Some(response)) => Ok(Entered::Handled(Box::new(response))),
        Ok(None) | Err(IdempotencyReason::StoreUnavailable) => Err(rejection.into()),
        Err(reason) => Err(reason.into()),
    }
}

/// What happens under the lock, in this order: look, handle, store, release, answer.
async fn once<S, ReqB, ResB>(
    options: &IdempotencyOptions,
    info: &RequestInfo,
    inner: S,
    (parts, body): (Parts, Bytes),
    pending: PendingResponse,
    guard: LockerGuard,
) -> Served<ResB, S::Error>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    ReqB: From<Bytes>,
    ResB: Body<Error: Into<BoxError>>,
{
    let work = async {
        match options.look(&pending.key, pending.fingerprint).await {
            Ok(None) => {}
            Ok(Some(response)) => return Ok(response),
            Err(reason) => return Ok(options.reject(info, reason)),
        }
        let mut request = Request::from_parts(parts, ReqB::from(body));
        request.extensions_mut().insert(HeldLock::clone(&guard));
        request.extensions_mut().insert(pending.clone());
        let response = call(inner, request).await?;
        if !(options.stored)(response.status(), response.headers()) {
            return Ok(response.map(LockBody::inner));
        }
        let stored = store(options, &pending, response).await;
        Ok(stored.unwrap_or_else(|rejected| options.reject(info, rejected)))
    };
    match guard.run_while_held(work).await {
        Ok(served) => {
            guard.release_before_response().await;
            served
        }
        Err(lost) => Ok(options.reject(info, Rejection::from(lost))),
    }
}

/// Stores a response, and hands it on.
async fn store<B>(
    options: &IdempotencyOptions,
    pending: &PendingResponse,
    response: Response<B>,
) -> Result<Response<LockBody<B>>, IdempotencyRefusal>
where
    B: Body<Error: Into<BoxError>>,
{
    let (head, body) = response.into_parts();
    let (kept, body) = match read_response(body, options.max_response).await {
        Buffered::Broken(body) => {
            tracing::warn!("the body of a response broke off, only that there was one is stored");
            (None, body)
        }
        Buffered::TooLarge(body) => (None, body),
        Buffered::Whole(bytes, trailers) => {
            let body = LockBody::with_trailers(bytes.clone(), trailers);
            (Some(bytes), body)
        }
    };
    match options.keep(pending, &head, kept).await {
        Put::Stored => Ok(Response::from_parts(head, body)),
        // Another request has stored one, so this request was not alone. The stored response, which
        // others will get, is the better one here too.
        Put::Refused => {
            tracing::error!("two requests with one Idempotency-Key were handled at once");
            match options.look(&pending.key, pending.fingerprint).await {
                Ok(Some(response)) => Ok(response),
                Err(reason @ IdempotencyReason::ResponseNotKept) => Err(reason.into()),
                _ => Err(Rejection::new(Reason::Lost).into()),
            }
        }
    }
}

impl IdempotencyOptions {
    /// The name of the lock; `None` if the request passes.
    fn name(&self, parts: &Parts) -> Result<Option<String>, IdempotencyRefusal> {
        if !self.methods.contains(&parts.method) {
            return Ok(None);
        }
        let key = match idempotency_key(&parts.headers) {
            Ok(key) => key,
            Err(KeyError::Missing(_)) if self.missing == MissingKey::Reject => {
                return Err(IdempotencyReason::KeyMissing.into());
            }
            Err(KeyError::Missing(_)) => return Ok(None),
            Err(error) => return Err(IdempotencyReason::KeyInvalid(error.to_string()).into()),
        };
        let scope = self.scope.of(parts).map_err(key_rejection)?;
        Ok(Some(join([scope, key])))
    }

    /// The answer to a request that has been handled; `None` if it has not.
    async fn look<B>(
        &self,
        key: &LockKey,
        fingerprint: Fingerprint,
    ) -> Result<Option<Response<LockBody<B>>>, IdempotencyReason> {
        match self.in_time(self.store.get(key)).await {
            Ok(None) => Ok(None),
            Ok(Some(stored)) if stored.fingerprint() != fingerprint => {
                Err(IdempotencyReason::KeyReused)
            }
            Ok(Some(stored)) => {
                let replayed = stored.replay().ok_or(IdempotencyReason::ResponseNotKept)?;
                Ok(Some(replayed.map(LockBody::whole)))
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "{UNREADABLE}");
                Err(IdempotencyReason::StoreUnavailable)
            }
        }
    }

    /// Stores a response. The client gets it whether or not the store works: the handler has run.
    async fn keep(
        &self,
        pending: &PendingResponse,
        head: &http::response::Parts,
        body: Option<Bytes>,
    ) -> Put {
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        response.headers_mut().clone_from(&head.headers);
        let (fingerprint, execution_id) = (pending.fingerprint, pending.execution_id);
        let stored = StoredResponse::new(fingerprint, execution_id, &response);
        match self.in_time(self.put(pending, &stored)).await {
            Ok(put) => put,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "{UNWRITTEN}");
                Put::Stored
            }
        }
    }

    /// Tries several times: a request without a stored response is handled again. A retry that
    /// finds the response of an earlier try counts as stored.
    async fn put(
        &self,
        pending: &PendingResponse,
        stored: &StoredResponse,
    ) -> Result<Put, StoreError> {
        let mut pauses = PAUSES.iter();
        loop {
            let (token, retention) = (pending.fencing_token, pending.retention);
            let error = match self.store.put(&pending.key, stored, token, retention).await {
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

    /// Answers in place of the handler; says what a lock that is held means here.
    fn reject<B>(
        &self,
        info: &RequestInfo,
        refusal: impl Into<IdempotencyRefusal>,
    ) -> Response<LockBody<B>> {
        let rejection = match refusal.into() {
            IdempotencyRefusal::Lock(rejection) => rejection,
            IdempotencyRefusal::Request(reason) => {
                let (name, response) = reason.answer();
                return self.common.answer(name, response);
            }
        };
        let is_held = matches!(rejection.reason(), Reason::Busy | Reason::TimedOut);
        let rejection = match is_held && rejection.detail().is_none() {
            true => rejection.with_detail(
                "a request with this Idempotency-Key is being handled, or its server has failed",
            ),
            false => rejection,
        };
        self.common.reject(info, &rejection)
    }
}

/// Between the tries to store a response, in milliseconds; the client waits for them.
const PAUSES: [u64; 4] = [50, 100, 200, 400];
const UNREADABLE: &str = "stored responses cannot be read, a request is rejected";
const UNWRITTEN: &str = "a response is not stored, a repetition of its request is handled again";
