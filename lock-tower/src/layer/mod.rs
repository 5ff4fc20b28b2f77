//! The layer for HTTP and gRPC.

mod body;
mod body_lock;
pub(crate) mod options;
mod service;

use std::fmt;
use std::sync::Arc;

use polylock_core::Mode;
use tower_layer::Layer;

use crate::keys::KeyExtractor;
use crate::locker::Locker;
use crate::rejection::RejectionResponder;

use self::options::{HoldUntil, KeySource, LayerOptions, OnDisconnect, OnLost, SafeMethods};

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

    fn change(mut self, change: impl FnOnce(&mut LayerOptions)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self
    }

    /// Sets when the lock is released. Default: [`HoldUntil::Handler`].
    #[must_use]
    pub fn with_hold(self, hold: HoldUntil) -> Self {
        self.change(|options| options.hold = hold)
    }

    /// Sets what happens to handlers whose client has disconnected. Default: [`OnDisconnect::Cancel`].
    #[must_use]
    pub fn with_on_disconnect(self, then: OnDisconnect) -> Self {
        self.change(|options| options.common.on_disconnect = then)
    }

    /// Sets what happens to handlers whose lock is lost. Default: [`OnLost::Cancel`].
    #[must_use]
    pub fn with_on_lost(self, then: OnLost) -> Self {
        self.change(|options| options.on_lost = then)
    }

    /// Sets what happens to requests with a safe method. Default: [`SafeMethods::Pass`].
    ///
    /// # Errors
    ///
    /// If they are to share a lock: [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the
    /// locker has [permits](crate::LockerBuilder::permits), which shared requests would not take, and
    /// [`Unsupported`](polylock_core::ErrorKind::Unsupported) if the backend has no shared locks.
    pub fn with_safe_methods(self, then: SafeMethods) -> polylock_core::Result<Self> {
        if then == SafeMethods::Shared {
            let why = "requests with a safe method share a lock and count no permits";
            self.options.common.locker.expect_exclusive(why)?;
            self.options.common.locker.check(Mode::Shared)?;
        }
        Ok(self.change(|options| options.safe_methods = then))
    }

    /// Sets how rejections are answered. Default:
    /// [`ProblemDetails`](crate::ProblemDetails).
    #[must_use]
    pub fn with_responder(self, responder: impl RejectionResponder) -> Self {
        self.change(|options| options.common.responder = Arc::new(responder))
    }

    /// Adds `Server-Timing: lock;dur=12.3` to responses: the milliseconds that a request waited for
    /// its lock, also if it was rejected. It shows clients how busy a key is. Default: not added.
    #[must_use]
    pub fn with_server_timing(self) -> Self {
        self.change(|options| options.server_timing = true)
    }

    /// Adds `X-Fencing-Token` to responses. A request for several keys has several tokens, so nothing is added to
    /// its response. Default: not added.
    #[must_use]
    pub fn with_fencing_token(self) -> Self {
        self.change(|options| options.fencing_token = true)
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
