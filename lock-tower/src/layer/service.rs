use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use polylock_core::Mode;
use tokio::time::Instant;
use tower_service::Service;

use crate::held_lock::{HeldLock, LockerGuard};
use crate::plain::CallError;
use crate::rejection::{Rejection, RequestInfo, grpc_timeout};
use crate::service::{ResponseFuture, call};

use super::KeyLockLayer;
use super::body::LockBody;
use super::body_lock::BodyLock;
use super::options::{HoldUntil, KeySource, LayerOptions, OnLost, SafeMethods};

/// The service that [`KeyLockLayer`] makes.
///
/// Clones share the queue. The service responds to rejected requests itself, and its error is that of the
/// inner service.
#[derive(Clone, Debug)]
pub struct KeyLock<S> {
    pub(super) inner: S,
    pub(super) layer: KeyLockLayer,
}

impl<S, ReqB, ResB> Service<Request<ReqB>> for KeyLock<S>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqB: Send + 'static,
    ResB: Body + Send + 'static,
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
            let began = options.server_timing.then(Instant::now);
            let (mut parts, body) = request.into_parts();
            let info = RequestInfo::of(&parts);
            let held = match options.acquire(&mut parts, &info).await {
                Ok(Some(held)) => held,
                Ok(None) => {
                    let response = call(inner, Request::from_parts(parts, body)).await?;
                    return Ok(response.map(LockBody::inner));
                }
                Err(rejection) => {
                    let response = options.common.reject(&info, &rejection);
                    return Ok(timed(response, began.map(|began| began.elapsed())));
                }
            };
            parts.extensions.insert(held.clone());
            let request = Request::from_parts(parts, body);
            let waited = began.map(|began| began.elapsed());
            let on_disconnect = options.common.on_disconnect;
            let handled = async move {
                let handled = handle(&options, inner, request, &held).await;
                let answered = options.common.answered(&info, handled);
                answered.map(|response| options.decorate(response, &held, waited))
            };
            on_disconnect.run(handled).await
        })
    }
}

/// A gRPC service keeps its name, so that the router of tonic takes it.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService> tonic::server::NamedService for KeyLock<S> {
    const NAME: &'static str = S::NAME;
}

/// Runs the handler under its locks, and releases them when the options say so.
async fn handle<S, ReqB, ResB>(
    options: &LayerOptions,
    inner: S,
    request: Request<ReqB>,
    held: &HeldLock,
) -> Result<Response<LockBody<ResB>>, CallError<S::Error>>
where
    S: Service<Request<ReqB>, Response = Response<ResB>>,
    ResB: Body,
{
    // Dropping this future releases the locks, even if the handler has kept a clone.
    let guard = (options.hold != HoldUntil::Manual).then(|| LockerGuard::new(held.clone()));
    let handled = match options.on_lost {
        OnLost::Cancel => held
            .run_while_held(pin!(call(inner, request)))
            .await
            .map_err(Rejection::from)?,
        OnLost::Continue => call(inner, request).await,
    };
    let response = match handled {
        Ok(response) => response,
        Err(error) => {
            release(guard).await;
            return Err(CallError::Inner(error));
        }
    };
    match (options.hold, guard) {
        (HoldUntil::BodyEnd { max }, Some(guard)) if !response.body().is_end_stream() => {
            let lock = BodyLock::new(guard, max, options.on_lost, response.headers());
            Ok(response.map(|body| LockBody::held(body, lock)))
        }
        (_, guard) => {
            release(guard).await;
            Ok(response.map(LockBody::inner))
        }
    }
}

async fn release(guard: Option<LockerGuard>) {
    if let Some(guard) = guard {
        guard.release_before_response().await;
    }
}

impl LayerOptions {
    /// Acquires the locks of a request; `None` if it needs none.
    async fn acquire(
        &self,
        parts: &mut Parts,
        info: &RequestInfo,
    ) -> Result<Option<HeldLock>, Rejection> {
        // Removes the lock of an outer layer: the handler must get the lock of its own layer.
        parts.extensions.remove::<HeldLock>();
        let Some(mode) = self.mode(info) else {
            return Ok(None);
        };
        let keys = match &self.source {
            #[cfg(feature = "axum")]
            KeySource::Axum(read) => read(parts).await,
            KeySource::Head(extractor) => extractor.keys(parts),
        };
        let client_timeout = info.is_grpc().then(|| grpc_timeout(parts)).flatten();
        let locker = &self.common.locker;
        locker.acquire(keys?, mode, client_timeout).await
    }

    fn mode(&self, info: &RequestInfo) -> Option<Mode> {
        let mode = self.common.locker.mode();
        match self.safe_methods {
            // gRPC ignores the method.
            _ if info.is_grpc() || !info.method().is_safe() => Some(mode),
            SafeMethods::Exclusive => Some(mode),
            SafeMethods::Pass => None,
            SafeMethods::Shared => Some(Mode::Shared),
        }
    }

    /// Adds the opt-in headers; `waited` is `Some` only with `server_timing`.
    fn decorate<B>(
        &self,
        response: Response<LockBody<B>>,
        held: &HeldLock,
        waited: Option<Duration>,
    ) -> Response<LockBody<B>> {
        let mut response = timed(response, waited);
        if let Some(token) = held.fencing_token().filter(|_| self.fencing_token) {
            let value = HeaderValue::from(token.value());
            response.headers_mut().insert(X_FENCING_TOKEN, value);
        }
        response
    }
}

/// Adds `Server-Timing`, if it is opted in.
fn timed<B>(mut response: Response<B>, waited: Option<Duration>) -> Response<B> {
    if let Some(waited) = waited {
        let text = format!("lock;dur={:.1}", waited.as_secs_f64() * 1e3);
        let value = HeaderValue::from_str(&text).expect("BUG: digits are a header");
        response.headers_mut().append(SERVER_TIMING, value);
    }
    response
}

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const X_FENCING_TOKEN: HeaderName = HeaderName::from_static("x-fencing-token");
