//! The layer for HTTP and gRPC.

mod body;
mod body_lock;
pub(crate) mod options;
mod service;

use std::fmt;
use std::sync::Arc;

use http::Response;
use tower_layer::Layer;

use crate::keys::KeyExtractor;
use crate::locker::Locker;
use crate::plain::CallError;
use crate::rejection::{
    ProblemDetails, Rejection, RejectionObserver, RejectionResponder, RequestInfo,
};

use self::options::{KeySource, LayerOptions, OnDisconnect};

pub(crate) use self::body::BoxError;
pub use self::body::{BodyError, LockBody};
pub use self::service::KeyLock;

/// Lets requests with the same key run one at a time, in all processes that use the same locks, or a
/// few at a time with [`LockerBuilder::permits`](crate::LockerBuilder::permits).
///
/// The service is always ready: the key is known only when a request arrives. The inner service is made
/// ready once the lock is held, so that waiting requests use none of its capacity. Put concurrency limits
/// inside this layer, and timeouts outside: they end the wait or the handler by dropping it.
///
/// # Cancel safety
///
/// A request that is dropped while it waits leaves the queue at once. If it is dropped while its handler
/// runs, it drops the handler, unless that [runs to completion](OnDisconnect::RunToCompletion), and
/// releases the lock in the background.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use http::Request;
/// use polylock_core::memory::Memory;
/// use polylock_tower::keys::Header;
/// use polylock_tower::{KeyLockLayer, Locker, OnDisconnect, OnLost, SafeMethods};
/// use tower::{Layer as _, ServiceExt as _};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let handler = tower::service_fn(|_: Request<String>| async {
/// #     Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
/// # });
/// let accounts = Locker::builder(Arc::new(Memory::new()), "accounts").try_only().build()?;
/// let layer = KeyLockLayer::new(accounts.clone(), Header::new("x-account")?)
///     .with_on_disconnect(OnDisconnect::RunToCompletion)
///     .with_on_lost(OnLost::Continue) // the handler looks at its `HeldLock`
///     .with_safe_methods(SafeMethods::Shared)?
///     .with_fencing_token();
/// let service = layer.layer(handler);
///
/// let request = || Request::post("/transfer").header("x-account", "42").body(String::new());
/// let response = service.clone().oneshot(request()?).await?;
/// assert!(response.headers().contains_key("x-fencing-token"));
///
/// let _held = accounts.lock("42").await?; // by another request
/// assert_eq!(service.clone().oneshot(request()?).await?.status(), 409);
/// let read = Request::get("/transfer").header("x-account", "42").body(String::new())?;
/// assert_eq!(service.oneshot(read).await?.status(), 409); // 200 with `SafeMethods::Pass`
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct KeyLockLayer {
    options: Arc<LayerOptions>,
}

impl KeyLockLayer {
    /// Makes a layer that takes its keys from `keys`.
    #[must_use]
    pub fn new(locker: Locker, keys: impl KeyExtractor) -> Self {
        Self::with_source(locker, KeySource::Head(Arc::new(keys)))
    }

    /// Makes a layer that takes its keys from an extractor of axum, such as `Path<Uuid>`.
    ///
    /// A request that the extractor rejects gets the extractor's response. Parameters of the path are known
    /// only inside a route: add the layer to a `MethodRouter`, which answers methods without a handler
    /// before the layer, or with `Router::route_layer` after the routes. `Router::layer` wraps the fallback
    /// too, so that a path without a route is answered with 500 in place of 404, unless the method of the
    /// request is safe and passes.
    #[cfg(feature = "axum")]
    #[must_use]
    pub fn from_extractor<E, F>(locker: Locker, keys: F) -> Self
    where
        E: axum_core::extract::FromRequestParts<()> + Send + 'static,
        F: Fn(E) -> crate::keys::Keys + Send + Sync + 'static,
    {
        Self::with_source(locker, KeySource::Axum(crate::axum::read_keys(keys)))
    }

    fn with_source(locker: Locker, source: KeySource) -> Self {
        Self {
            options: Arc::new(LayerOptions::new(locker, source)),
        }
    }

    /// Returns the locker, with the limits and the queue of this layer.
    #[must_use]
    pub fn locker(&self) -> &Locker {
        &self.options.common.locker
    }
}

impl<S> Layer<S> for KeyLockLayer {
    type Service = KeyLock<S>;

    fn layer(&self, inner: S) -> KeyLock<S> {
        KeyLock {
            inner,
            layer: self.clone(),
        }
    }
}

/// The options that the idempotency layer has, too.
#[derive(Clone)]
pub(crate) struct CommonOptions {
    pub(crate) locker: Locker,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) responder: Arc<dyn RejectionResponder>,
}

impl CommonOptions {
    pub(crate) fn new(locker: Locker, on_disconnect: OnDisconnect) -> Self {
        Self {
            locker,
            on_disconnect,
            responder: Arc::new(ProblemDetails::new()),
        }
    }

    /// Responds to a rejected request in place of its handler.
    pub(crate) fn answered<B, E>(
        &self,
        info: &RequestInfo,
        handled: Result<Response<LockBody<B>>, CallError<E>>,
    ) -> Result<Response<LockBody<B>>, E> {
        match handled {
            Ok(response) => Ok(response),
            Err(CallError::Inner(error)) => Err(error),
            Err(CallError::Rejected(rejection)) => Ok(self.reject(info, &rejection)),
        }
    }

    pub(crate) fn reject<B>(
        &self,
        info: &RequestInfo,
        rejection: &Rejection,
    ) -> Response<LockBody<B>> {
        let response = match rejection.response() {
            Some(response) => response.clone(),
            None => self.responder.respond(info, rejection),
        };
        let (observed, status) = (RejectionObserver::rejected, response.status());
        self.locker.observe(observed, rejection.reason(), status);
        let mut response = response.map(LockBody::whole);
        response.extensions_mut().insert(RejectionMark);
        response
    }
}

/// Marks the response to a rejected request, which is not that of its handler, for an outer layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RejectionMark;

impl fmt::Debug for KeyLockLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLockLayer")
            .field("locker", self.locker())
            .field("hold", &self.options.hold)
            .field("on_lost", &self.options.on_lost)
            .field("safe_methods", &self.options.safe_methods)
            .finish_non_exhaustive()
    }
}
