//! The layer for HTTP and gRPC.

mod body;
mod future;
mod options;
mod sending;
mod serve;
mod service;
mod settings;

use std::fmt;
use std::sync::Arc;

use lock_core::Mode;
use tower_layer::Layer;

use crate::answer::Answer;
use crate::keys::KeyExtractor;
use crate::locker::Locker;

use self::settings::{Settings, Source};

pub use self::body::{BodyError, LockBody};
pub use self::future::ResponseFuture;
pub use self::options::{HoldUntil, OnDisconnect, OnLost, SafeMethods};
pub use self::service::KeyLock;

/// Lets requests with the same key run one at a time, in all processes that use the same locks.
///
/// The service that it makes is always ready: the key is known only when a request is there, and the
/// inner service is made ready once the lock is held, so that a waiting request occupies nothing in
/// it. Limits of concurrency belong inside; time-outs belong outside, and end the wait or the
/// handler by dropping it.
///
/// # Cancel safety
///
/// A request that is dropped while it waits leaves the queue at once. One that is dropped while its
/// handler runs drops that, unless it [runs to completion](OnDisconnect::RunToCompletion), and gives
/// the lock back in the background.
#[derive(Clone)]
pub struct KeyLockLayer {
    settings: Arc<Settings>,
}

impl KeyLockLayer {
    /// Makes a layer that takes its keys from `keys`.
    #[must_use]
    pub fn new(locker: Locker, keys: impl KeyExtractor) -> Self {
        Self {
            settings: Arc::new(Settings::new(locker, Source::Head(Arc::new(keys)))),
        }
    }

    /// Makes a layer that takes its keys from an extractor of axum, such as `Path<Uuid>`.
    ///
    /// A request that the extractor refuses is answered as the extractor says. Parameters of the
    /// path are known inside of a route only: use it on a `MethodRouter`, where a method without a
    /// handler is answered before the layer, or by `Router::route_layer` or `Router::layer` after
    /// the routes.
    #[cfg(feature = "axum")]
    #[must_use]
    pub fn from_extractor<E, F>(locker: Locker, keys: F) -> Self
    where
        E: axum_core::extract::FromRequestParts<()> + Send + 'static,
        F: Fn(E) -> crate::keys::Keys + Send + Sync + 'static,
    {
        let source = Source::Axum(crate::keys::from_parts::<E, F>(keys));
        Self {
            settings: Arc::new(Settings::new(locker, source)),
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Sets when the lock is released. Default: [`HoldUntil::Handler`].
    #[must_use]
    pub fn with_hold(self, hold: HoldUntil) -> Self {
        self.change(|settings| settings.hold = hold)
    }

    /// Sets what becomes of handlers whose client is gone. Default: [`OnDisconnect::Cancel`].
    #[must_use]
    pub fn with_on_disconnect(self, then: OnDisconnect) -> Self {
        self.change(|settings| settings.on_disconnect = then)
    }

    /// Sets what becomes of handlers whose lock is lost. Default: [`OnLost::Cancel`].
    #[must_use]
    pub fn with_on_lost(self, then: OnLost) -> Self {
        self.change(|settings| settings.on_lost = then)
    }

    /// Sets what becomes of requests with a safe method. Default: [`SafeMethods::Pass`].
    ///
    /// # Errors
    ///
    /// [`Unsupported`](lock_core::ErrorKind::Unsupported) if they are to share a lock, and the
    /// backend has no shared locks.
    pub fn with_safe_methods(self, then: SafeMethods) -> lock_core::Result<Self> {
        if then == SafeMethods::Shared {
            self.settings.locker.check(Mode::Shared)?;
        }
        Ok(self.change(|settings| settings.safe_methods = then))
    }

    /// Sets how rejections are answered. Default: [`Problem`](crate::Problem).
    #[must_use]
    pub fn with_answer(self, answer: impl Answer) -> Self {
        self.change(|settings| settings.answer = Arc::new(answer))
    }

    /// Adds `Server-Timing: lock;dur=12.3` to responses: the milliseconds that a request waited for
    /// its lock. It shows clients how busy a key is. Default: not added.
    #[must_use]
    pub fn with_server_timing(self) -> Self {
        self.change(|settings| settings.server_timing = true)
    }

    /// Adds `X-Fencing-Token` to responses. Default: not added.
    #[must_use]
    pub fn with_fencing_token(self) -> Self {
        self.change(|settings| settings.fencing_token = true)
    }

    /// The locker, with the bounds and the queue of this layer.
    #[must_use]
    pub fn locker(&self) -> &Locker {
        &self.settings.locker
    }
}

impl<S> Layer<S> for KeyLockLayer {
    type Service = KeyLock<S>;

    fn layer(&self, inner: S) -> KeyLock<S> {
        KeyLock::new(inner, Arc::clone(&self.settings))
    }
}

impl fmt::Debug for KeyLockLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLockLayer")
            .field("settings", &self.settings)
            .finish()
    }
}
