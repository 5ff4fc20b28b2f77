//! The layer for services whose requests are not HTTP.
//!
//! [`KeyLockLayer`](crate::KeyLockLayer) responds to rejected requests. [`CallLockLayer`] has no response
//! to send, and returns [`CallError`] instead.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::held_lock::{HeldLock, LockerGuard};
use crate::keys::{KeyError, Keys};
use crate::locker::Locker;
use crate::rejection::{ProblemDetails, Rejection, RejectionObserver};
use crate::service::{ResponseFuture, call};

/// Lets calls with the same key run one at a time, in all processes that use the same locks, or a few
/// at a time with [`LockerBuilder::permits`](crate::LockerBuilder::permits).
///
/// # Cancel safety
///
/// A call that is dropped while it waits leaves the queue at once. A call that is dropped later drops the
/// future of the inner service and releases the lock in the background.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
///
/// use polylock_core::memory::Memory;
/// use polylock_tower::plain::CallLockLayer;
/// use polylock_tower::{HeldLock, Keys, Locker};
/// use tower::{Layer as _, ServiceExt as _, service_fn};
///
/// struct Job {
///     queue: &'static str,
///     held: Option<HeldLock>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queues = Locker::builder(Arc::new(Memory::new()), "queues").build()?;
/// let keys = |job: &Job| Ok(Keys::one(job.queue));
/// let layer = CallLockLayer::new(queues, keys, |job, held| job.held = Some(held));
/// let worker = layer.layer(service_fn(|job: Job| async move {
///     Ok::<_, Infallible>(job.held.is_some_and(|held| held.ensure_held().is_ok()))
/// }));
/// assert!(worker.oneshot(Job { queue: "mail", held: None }).await?);
/// # Ok(()) }
/// ```
pub struct CallLockLayer<R> {
    options: Arc<CallOptions<R>>,
}

struct CallOptions<R> {
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
            options: Arc::new(CallOptions {
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
            options: Arc::clone(&self.options),
        }
    }
}

impl<S, R> Layer<S> for CallLockLayer<R> {
    type Service = CallLock<S, R>;

    fn layer(&self, inner: S) -> CallLock<S, R> {
        CallLock {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service that [`CallLockLayer`] makes; clones share the queue.
pub struct CallLock<S, R> {
    inner: S,
    layer: CallLockLayer<R>,
}

impl<S: Clone, R> Clone for CallLock<S, R> {
    fn clone(&self) -> Self {
        self.layer.layer(self.inner.clone())
    }
}

/// The error of a call behind a [`CallLock`].
///
/// [`CallLockLayer`] has an example of such calls.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError<E> {
    /// The inner service failed.
    #[error(transparent)]
    Inner(E),
    /// The call did not get its lock, or lost it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
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
    type Future = ResponseFuture<S::Response, Self::Error>;

    /// Always ready; the inner service is made ready once the lock is held.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (options, inner) = (Arc::clone(&self.layer.options), self.inner.clone());
        // The key is read here: a request that is not `Sync` cannot be borrowed while it waits.
        let keys = (options.keys)(&request);
        Box::pin(async move {
            let answer = handle(&options, inner, request, keys).await;
            if let Err(CallError::Rejected(rejection)) = &answer {
                let (observed, reason) = (RejectionObserver::rejected, rejection.reason());
                let status = ProblemDetails::new().status(reason);
                options.locker.observe(observed, reason, status);
            }
            answer
        })
    }
}

/// Runs a call under its locks.
async fn handle<S: Service<R>, R>(
    options: &CallOptions<R>,
    inner: S,
    mut request: R,
    keys: Result<Keys, KeyError>,
) -> Result<S::Response, CallError<S::Error>> {
    let keys = keys.map_err(Rejection::from)?;
    let mode = options.locker.mode();
    let held = options.locker.acquire(keys, mode, None).await?;
    let Some(held) = held else {
        return call(inner, request).await.map_err(CallError::Inner);
    };
    let guard = LockerGuard::new(held);
    (options.attach)(&mut request, HeldLock::clone(&guard));
    let answer = guard.run_while_held(pin!(call(inner, request))).await;
    let answer = answer.map_err(Rejection::from)?;
    guard.release_before_response().await;
    answer.map_err(CallError::Inner)
}

impl<R> fmt::Debug for CallLockLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLockLayer")
            .field("locker", &self.options.locker)
            .finish_non_exhaustive()
    }
}

impl<S, R> fmt::Debug for CallLock<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallLock").field(&self.layer).finish()
    }
}
