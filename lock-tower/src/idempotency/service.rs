use std::iter::successors;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::request::Parts;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use polylock_core::{LockKey, Mode};
use tokio::time::Instant;
use tower_service::Service;

use crate::held_lock::{HeldLock, LockerGuard};
use crate::keys::{KeyError, join};
use crate::layer::options::{OnDisconnect, RejectionMark};
use crate::layer::{BoxError, LockBody};
use crate::plain::CallError;
use crate::rejection::{Reason, Rejection, RequestInfo};
use crate::service::{ResponseFuture, call, to_completion};

use super::key::idempotency_key;
use super::layer::IdempotencyOptions;
use super::stored::{fingerprint, random_id};
use super::{IdempotencyLayer, MissingKey, PendingResponse, Put, StoreError, StoredResponse};

/// The service that [`IdempotencyLayer`] makes.
///
/// Clones share the queue and the store. The service responds to rejected requests itself, and its error is
/// that of the inner service, which gets the request body in one piece. Trailers of the request are dropped, and
/// do not count when a repetition is compared with it.
#[derive(Clone, Debug)]
pub struct Idempotency<S> {
    pub(super) inner: S,
    pub(super) layer: IdempotencyLayer,
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

    /// Always ready; the inner service is made ready once the lock is held.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        let (options, inner) = (Arc::clone(&self.layer.options), self.inner.clone());
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let info = RequestInfo::of(&parts);
            let (body, pending, held) = match options.enter(&parts, body).await {
                Ok(Entered::Held(body, pending, held)) => (body, pending, held),
                Ok(Entered::Handled(response)) => return Ok(*response),
                Ok(Entered::Passes(body)) => {
                    let response = call(inner, Request::from_parts(parts, body)).await?;
                    return Ok(response.map(LockBody::inner));
                }
                Err(rejection) => return Ok(options.common.reject(&info, &rejection)),
            };
            parts.extensions.insert(held.clone());
            parts.extensions.insert(pending.clone());
            let request = Request::from_parts(parts, ReqB::from(body));
            let on_disconnect = options.common.on_disconnect;
            let handled = async move {
                let handled = handle(&options, inner, request, pending, held).await;
                options.common.answered(&info, handled)
            };
            on_disconnect.run(handled).await
        })
    }
}

enum Entered<ReqB, ResB> {
    Handled(Box<Response<LockBody<ResB>>>),
    Held(Bytes, PendingResponse, HeldLock),
    Passes(ReqB),
}

/// The response to a request that has its lock.
enum Handled<B> {
    /// Read and stored before it is sent.
    Final(Response<B>),
    Unstored(Response<LockBody<B>>),
}

/// What happens to a request that has its lock, in this order: look, handle, store, release, answer.
async fn handle<S, ReqB, ResB>(
    options: &Arc<IdempotencyOptions>,
    inner: S,
    request: Request<ReqB>,
    pending: PendingResponse,
    held: HeldLock,
) -> Result<Response<LockBody<ResB>>, CallError<S::Error>>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    ResB: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    // Dropping this future releases the lock, even if the handler has kept a clone.
    let guard = LockerGuard::new(held);
    let work = async {
        if let Some(response) = options.look(&pending.key, pending.fingerprint).await? {
            return Ok(Handled::Unstored(response));
        }
        let response = call(inner, request).await.map_err(CallError::Inner)?;
        let is_rejection = response.extensions().get::<RejectionMark>().is_some();
        if is_rejection || !(options.stored)(response.status(), response.headers()) {
            return Ok(Handled::Unstored(response.map(LockBody::inner)));
        }
        Ok(Handled::Final(response))
    };
    let handled: Result<_, CallError<S::Error>> = guard
        .run_while_held(pin!(work))
        .await
        .map_err(Rejection::from)?;
    let response = match handled {
        Ok(Handled::Final(response)) => response,
        Ok(Handled::Unstored(response)) => {
            guard.release_before_response().await;
            return Ok(response);
        }
        Err(error) => {
            guard.release_before_response().await;
            return Err(error);
        }
    };
    let on_disconnect = options.common.on_disconnect;
    let options = Arc::clone(options);
    let keep = async move {
        let (head, body) = response.into_parts();
        let read = read_response(body, options.max_response);
        let read = guard.run_while_held(pin!(read)).await;
        let (kept, body) = read.map_err(Rejection::from)?;
        let kept = Response::from_parts(head.clone(), kept);
        let stored = StoredResponse::new(pending.execution_id, pending.fingerprint, &kept);
        let response = Response::from_parts(head, body);
        // The handler is done, so a loss of the lock no longer ends this: without a stored response, a
        // repetition would be handled again. The store refuses the response if another request was handled
        // first.
        let kept = options.keep(&pending, &stored, response, &guard).await;
        guard.release_before_response().await;
        kept
    };
    let kept = match on_disconnect {
        // A client that leaves can no longer cancel the handler, so its response is read and stored.
        OnDisconnect::Cancel => to_completion(keep).await,
        // This task does not end with its client.
        OnDisconnect::RunToCompletion => keep.await,
    };
    kept.map_err(CallError::Rejected)
}

impl IdempotencyOptions {
    /// Reads the request and acquires its lock. Without the lock it still looks for a response: the holder
    /// may be replaying one, and replays need no lock service. If the queue is full it does not look: the
    /// store needs its capacity for the responses of handled requests.
    async fn enter<ReqB, ResB>(
        &self,
        parts: &Parts,
        body: ReqB,
    ) -> Result<Entered<ReqB, ResB>, Rejection>
    where
        ReqB: Body<Error: Into<BoxError>>,
    {
        let Some(name) = self.name(parts)? else {
            return Ok(Entered::Passes(body));
        };
        let body = read_request(body, self.max_request).await;
        let body = body.map_err(Rejection::new)?;
        let fingerprint = fingerprint(parts, &body);
        let locker = &self.common.locker;
        let key = locker.key(&name)?;
        let held = locker.acquire_keys(vec![key.clone()], Mode::Exclusive, None);
        let not_held = match held.await {
            Ok(held) => {
                let pending = PendingResponse {
                    key,
                    fencing_token: held.fencing_token(),
                    retention: self.retention,
                    fingerprint,
                    execution_id: random_id(),
                };
                return Ok(Entered::Held(body, pending, held));
            }
            Err(rejection) => rejection,
        };
        let not_held = match not_held.reason() {
            Reason::QueueFull => return Err(not_held),
            Reason::Busy | Reason::TimedOut => not_held.with_detail(
                "a request with this Idempotency-Key is being handled, or its server has failed",
            ),
            _ => not_held,
        };
        match self.look(&key, fingerprint).await {
            Ok(Some(response)) => Ok(Entered::Handled(Box::new(response))),
            Ok(None) => Err(not_held),
            Err(unread) if unread.reason() == Reason::StoreUnavailable => Err(not_held),
            Err(rejection) => Err(rejection),
        }
    }

    /// The name of the lock; `None` if the request passes.
    fn name(&self, parts: &Parts) -> Result<Option<String>, Rejection> {
        if !self.methods.contains(&parts.method) {
            return Ok(None);
        }
        match idempotency_key(&parts.headers) {
            // The status of a call is in its trailers, which are not stored.
            Ok(_) if RequestInfo::of(parts).is_grpc() => {
                let detail = "a call of gRPC has an Idempotency-Key".to_owned();
                Err(KeyError::Misconfigured(detail).into())
            }
            Ok(key) => Ok(Some(join([self.scope.of(parts)?, key]))),
            Err(KeyError::Missing(_)) if self.missing == MissingKey::Pass => Ok(None),
            Err(KeyError::Missing(_)) => Err(Rejection::new(Reason::IdempotencyKeyMissing)),
            Err(error) => {
                let rejection = Rejection::new(Reason::IdempotencyKeyInvalid);
                Err(rejection.with_detail(error.to_string()))
            }
        }
    }

    /// The answer to a request that has been handled; `None` if it has not.
    async fn look<B>(
        &self,
        key: &LockKey,
        fingerprint: [u8; 32],
    ) -> Result<Option<Response<LockBody<B>>>, Rejection> {
        // What answers with an error is not asked again: the client can do that.
        match retried(self.store_timeout, false, || self.store.get(key)).await {
            Ok(None) => Ok(None),
            Ok(Some(stored)) if stored.fingerprint != fingerprint => {
                Err(Rejection::new(Reason::IdempotencyKeyReused))
            }
            Ok(Some(stored)) => match stored.replay() {
                Some(response) => Ok(Some(response.map(LockBody::whole))),
                None => Err(Rejection::new(Reason::ResponseNotKept)),
            },
            Err(error) => {
                if self.common.locker.warns(UNREADABLE) {
                    tracing::warn!(error = &error as &dyn std::error::Error, "{UNREADABLE}");
                }
                Err(self.common.locker.later(Reason::StoreUnavailable))
            }
        }
    }

    /// Stores a response, and hands it on.
    async fn keep<B>(
        &self,
        pending: &PendingResponse,
        stored: &StoredResponse,
        response: Response<LockBody<B>>,
        guard: &LockerGuard,
    ) -> Result<Response<LockBody<B>>, Rejection> {
        let was_alone = match self.put(pending, stored).await {
            Ok(Put::Stored) => true,
            Ok(Put::Refused) => {
                tracing::error!("two requests with one Idempotency-Key were handled at once");
                false
            }
            // The handler has run, so the client gets its response. Without the lock another request may have
            // been handled by now.
            Err(error) => {
                if self.common.locker.warns(UNWRITTEN) {
                    tracing::warn!(error = &error as &dyn std::error::Error, "{UNWRITTEN}");
                }
                guard.lost_reason().is_none()
            }
        };
        if was_alone {
            return Ok(response);
        }
        // Repetitions get the stored response, so this client gets it as well.
        match self.look(&pending.key, pending.fingerprint).await {
            Ok(Some(response)) => Ok(response),
            Err(rejection) if rejection.reason() == Reason::ResponseNotKept => Err(rejection),
            _ => Err(Rejection::new(Reason::Lost)),
        }
    }

    /// Stores a response with retries, because a request without a stored response is handled again. A
    /// retry that finds the response of an earlier attempt counts as stored.
    ///
    /// If the store has not taken the response by then, it is also asked in the last quarter of the time to record
    /// that there was one: the response may be larger than the limit of a database.
    async fn put(
        &self,
        pending: &PendingResponse,
        stored: &StoredResponse,
    ) -> Result<Put, StoreError> {
        let (token, retention) = (pending.fencing_token, pending.retention);
        let quarter = self.store_timeout / 4;
        let put = |response| self.store.put(&pending.key, response, token, retention);
        let error = match retried(quarter * 3, true, || put(stored)).await {
            Ok(put) => return Ok(put),
            Err(error) => error,
        };
        let record = &stored.clone().without_body();
        let either = || async {
            match put(stored).await {
                Err(_) => put(record).await,
                put => put,
            }
        };
        retried(quarter, true, either).await.map_err(|_| error)
    }
}

/// Attempts something until the limit, or also until an error. An attempt gets two thirds of the time that is
/// left, because the connection that it uses may be dead, and the next one uses another.
async fn retried<T, F>(
    limit: Duration,
    also_after_errors: bool,
    attempt: impl Fn() -> F + Send + Sync,
) -> Result<T, StoreError>
where
    T: Send,
    F: Future<Output = Result<T, StoreError>> + Send,
{
    let (began, mut last) = (Instant::now(), None);
    let attempts = async {
        let mut pause = FIRST_PAUSE;
        loop {
            let left = limit.saturating_sub(began.elapsed());
            match tokio::time::timeout(left / 3 * 2, attempt()).await {
                Ok(Err(error)) if also_after_errors => last = Some(error),
                Ok(done) => return done,
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    };
    match tokio::time::timeout(limit, attempts).await {
        Ok(done) => done,
        Err(_) => Err(last.unwrap_or_else(|| StoreError::new("the store does not answer in time"))),
    }
}

/// Backoff between attempts; the client waits for it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(400);
const UNREADABLE: &str = "stored responses cannot be read, requests are rejected";
const UNWRITTEN: &str = "responses are not stored, repetitions of their requests are handled again";

/// Reads the body of a request to its end. Its trailers are dropped: a body that is made of bytes has none.
async fn read_request<B>(body: B, limit: usize) -> Result<Bytes, Reason>
where
    B: Body<Error: Into<BoxError>>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(Reason::BodyTooLarge);
    }
    let mut body = pin!(Limited::new(body, limit));
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            // Copied, because small frames take more memory than their bytes.
            Ok(Ok(data)) => read.put(data),
            Ok(Err(_trailers)) => {}
            Err(error) if is_too_large(&*error) => return Err(Reason::BodyTooLarge),
            Err(_) => return Err(Reason::BodyUnreadable),
        }
    }
    Ok(read.freeze())
}

/// Whether a limit of this layer, or of a body that an outer layer has limited and wrapped, is exceeded.
fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    successors(Some(error), |&error| error.source()).any(|error| error.is::<LengthLimitError>())
}

/// Reads the body of a response up to `limit` bytes. Returns the bytes to store (`None` if the body is
/// larger or breaks off) and the body for the client.
async fn read_response<B>(body: B, limit: usize) -> (Option<Bytes>, LockBody<B>)
where
    B: Body<Error: Into<BoxError>>,
{
    let mut body = Box::pin(body);
    let mut read = BytesMut::new();
    let mut trailers = None;
    if body.size_hint().lower() > limit as u64 {
        return (None, LockBody::partly_read(read.freeze(), body));
    }
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => read.put(data),
            Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
            Err(error) => {
                tracing::warn!(
                    "the body of a response broke off, only that there was one is stored"
                );
                return (None, LockBody::read(read.freeze(), Some(Err(error.into()))));
            }
        }
        if read.len() > limit {
            return (None, LockBody::partly_read(read.freeze(), body));
        }
    }
    let read = read.freeze();
    (Some(read.clone()), LockBody::read(read, trailers.map(Ok)))
}
