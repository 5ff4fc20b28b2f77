//! The layer for services whose requests are not HTTP.
//!
//! [`KeyLockLayer`](crate::KeyLockLayer) answers what it rejects; where there is nothing to answer
//! with, [`CallLockLayer`] returns [`CallError`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lock_core::Mode;
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::Rejection;
use crate::held::{HeldLock, Ward};
use crate::inner::call;
use crate::keys::{KeyError, Keys};
use crate::locker::{Locker, no_key};

/// Lets calls with the same key run one at a time, in all processes that use the same locks.
///
/// # Cancel safety
///
/// A call that is dropped while it waits leaves the queue at once; later, it drops the future of the
/// inner service and gives the lock back in the background.
pub struct CallLockLayer<R> {
    settings: Arc<Settings<R>>,
}

struct Settings<R> {
    locker: Locker,
    keys: KeysOf<R>,
    attach: Attach<R>,
}

type KeysOf<R> = Box<dyn Fn(&R) -> Result<Keys, KeyError> + Send + Sync>;
type Attach<R> = Box<dyn Fn(&mut R, HeldLock) + Send + Sync>;

impl<R> CallLockLayer<R> {
    /// Makes a layer that takes its keys from `keys`.
    ///
    /// `attach` puts the [`HeldLock`] where the inner service finds it.
    #[must_use]
    pub fn new(
        locker: Locker,
        keys: impl Fn(&R) -> Result<Keys, KeyError> + Send + Sync + 'static,
        attach: impl Fn(&mut R, HeldLock) + Send + Sync + 'static,
    ) -> Self {
        Self {
            settings: Arc::new(Settings {
                locker,
                keys: Box::new(keys),
                attach: Box::new(attach),
            }),
        }
    }
}

impl<R> Clone for CallLockLayer<R> {
    fn clone(&self) -> Self {
        Self {
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<S, R> Layer<S> for CallLockLayer<R> {
    type Service = CallLock<S, R>;

    fn layer(&self, inner: S) -> CallLock<S, R> {
        CallLock {
            inner,
            settings: Arc::clone(&self.settings),
        }
    }
}

/// The service that [`CallLockLayer`] makes; clones share the queue.
pub struct CallLock<S, R> {
    inner: S,
    settings: Arc<Settings<R>>,
}

impl<S: Clone, R> Clone for CallLock<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            settings: Arc::clone(&self.settings),
        }
    }
}

/// What goes wrong with a call behind a [`CallLock`].
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError<E> {
    /// The inner service failed.
    #[error(transparent)]
    Inner(E),
    /// The call did not get its lock, or lost it.
    #[error(transparent)]
    Rejected(Rejection),
}

impl<S, R> Service<R> for CallLock<S, R>
where
    S: Service<R> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    S::Response: Send + 'static,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = CallError<S::Error>;
    type Future = CallFuture<S::Response, S::Error>;

    /// Always ready; the inner service is asked when the lock is held.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (settings, inner) = (Arc::clone(&self.settings), self.inner.clone());
        // The key is read here: a request that is not `Sync` cannot be borrowed while it waits.
        let keys = (settings.keys)(&request);
        CallFuture(Box::pin(serve(settings, inner, request, keys)))
    }
}

async fn serve<S: Service<R>, R>(
    settings: Arc<Settings<R>>,
    inner: S,
    mut request: R,
    keys: Result<Keys, KeyError>,
) -> Result<S::Response, CallError<S::Error>> {
    let rejected = |rejection| CallError::Rejected(rejection);
    let keys = keys.map_err(no_key).map_err(rejected)?;
    let claim = settings.locker.claim(keys, Mode::Exclusive, None).await;
    let Some(claim) = claim.map_err(rejected)? else {
        return call(inner, request).await.map_err(CallError::Inner);
    };
    let ward = Ward::new(HeldLock::new(claim));
    (settings.attach)(&mut request, ward.held().clone());
    let answer = match ward.held().run(call(inner, request)).await {
        Ok(answer) => answer.map_err(CallError::Inner),
        Err(lost) => return Err(rejected(lost.into())),
    };
    ward.give_back().await;
    answer
}

/// The future of a [`CallLock`].
///
/// # Cancel safety
///
/// As for [`CallLockLayer`].
#[must_use = "futures do nothing unless they are polled"]
pub struct CallFuture<T, E>(Pin<Box<dyn Future<Output = Result<T, CallError<E>>> + Send>>);

impl<T, E> Future for CallFuture<T, E> {
    type Output = Result<T, CallError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<R> fmt::Debug for CallLockLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLockLayer")
            .field("locker", &self.settings.locker)
            .finish_non_exhaustive()
    }
}

impl<S, R> fmt::Debug for CallLock<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLock")
            .field("locker", &self.settings.locker)
            .finish_non_exhaustive()
    }
}

impl<T, E> fmt::Debug for CallFuture<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFuture").finish_non_exhaustive()
    }
}
