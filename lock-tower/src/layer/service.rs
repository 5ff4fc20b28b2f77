use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::body::LockBody;
use super::future::ResponseFuture;
use super::serve::serve;
use super::settings::Settings;

/// The service that [`KeyLockLayer`](crate::KeyLockLayer) makes.
///
/// Clones share the queue. It answers rejections by itself and has the error of the inner service.
#[derive(Clone, Debug)]
pub struct KeyLock<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> KeyLock<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }
}

impl<S, ReqB, ResB> Service<Request<ReqB>> for KeyLock<S>
where
    S: Service<Request<ReqB>, Response = Response<ResB>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqB: Send + 'static,
    ResB: http_body::Body + Send + 'static,
{
    type Response = Response<LockBody<ResB>>;
    type Error = S::Error;
    type Future = ResponseFuture<ResB, S::Error>;

    /// Always ready; the inner service is asked when the lock is held.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        let (settings, inner) = (Arc::clone(&self.settings), self.inner.clone());
        ResponseFuture::new(serve(settings, inner, request))
    }
}

/// A gRPC service keeps its name, so that the router of tonic takes it.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService> tonic::server::NamedService for KeyLock<S> {
    const NAME: &'static str = S::NAME;
}
