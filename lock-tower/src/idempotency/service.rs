use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::IdempotencyBody;
use super::future::IdempotencyFuture;
use super::serve::serve;
use super::settings::Settings;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The service that [`IdempotencyLayer`](super::IdempotencyLayer) makes.
///
/// Clones share the queue and the store. It answers what it refuses by itself and has the error of
/// the inner service, which gets the body of the request in one piece.
#[derive(Clone, Debug)]
pub struct Idempotency<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> Idempotency<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
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
    type Response = Response<IdempotencyBody<ResB>>;
    type Error = S::Error;
    type Future = IdempotencyFuture<ResB, S::Error>;

    /// Always ready; the inner service is asked when the lock is held.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        let (settings, inner) = (Arc::clone(&self.settings), self.inner.clone());
        IdempotencyFuture::new(serve(settings, inner, request))
    }
}
