//! The values of the options of a layer.

use std::time::Duration;

use crate::service::to_completion;

/// When the lock of a request is released.
///
/// # Examples
///
/// The response is sent at once, and the lock is held until the work in the background ends:
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
///
/// use http::{Request, Response, request::Parts};
/// use polylock_core::memory::Memory;
/// use polylock_tower::{HeldLock, HoldUntil, KeyLockLayer, Keys, Locker, Reason};
/// use tower::{Layer as _, ServiceExt as _, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # async fn export() { std::future::pending().await }
/// let exports = Locker::builder(Arc::new(Memory::new()), "exports").try_only().build()?;
/// let layer = KeyLockLayer::new(exports.clone(), |_: &Parts| Ok(Keys::one("nightly")))
///     .with_hold(HoldUntil::Manual);
/// let service = layer.layer(service_fn(|request: Request<String>| async move {
///     let held = request.extensions().get::<HeldLock>().cloned();
///     tokio::spawn(async move {
///         export().await;
///         drop(held);
///     });
///     Ok::<_, Infallible>(Response::new("accepted".to_owned()))
/// }));
/// service.oneshot(Request::post("/exports").body(String::new())?).await?;
/// let rejection = exports.lock("nightly").await.expect_err("the export goes on");
/// assert_eq!(rejection.reason(), Reason::Busy);
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum HoldUntil {
    /// When the response body has been sent or dropped, or `max` has passed since its head. In the last
    /// case the rest of the body is an error, and a slow reader is cut off. A body that is not polled lives
    /// on until its connection ends, without the lock.
    BodyEnd {
        /// Max time for the body.
        max: Duration,
    },
    /// When the handler is done, before the client sees the head of its response, so that the client's next
    /// request does not find its own lock held. The default.
    #[default]
    Handler,
    /// When [`HeldLock::release`](crate::HeldLock::release) is called, or the last clone of the
    /// [`HeldLock`](crate::HeldLock) is dropped, of which the layer has one until the handler is done.
    Manual,
}

/// What happens to a handler whose client has disconnected.
///
/// The example of [`KeyLockLayer`](crate::KeyLockLayer) sets it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum OnDisconnect {
    /// It is dropped, as without this layer, and its lock released. A statement that it has sent
    /// may still run in the database when the next request enters; the fencing token detects it.
    /// The default of [`KeyLockLayer`](crate::KeyLockLayer).
    #[default]
    Cancel,
    /// It runs to completion in its own task, and keeps the lock until then. The handler of a request that
    /// passes without a lock is dropped, as without this layer. The default of
    /// [`IdempotencyLayer`](crate::idempotency::IdempotencyLayer).
    RunToCompletion,
}

impl OnDisconnect {
    /// Runs a handler, whether or not its client stays.
    pub(crate) async fn run<W>(self, handler: W) -> W::Output
    where
        W: Future<Output: Send> + Send + 'static,
    {
        match self {
            Self::Cancel => handler.await,
            Self::RunToCompletion => to_completion(handler).await,
        }
    }
}

/// What happens to a handler whose lock is lost.
///
/// The example of [`KeyLockLayer`](crate::KeyLockLayer) sets it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum OnLost {
    /// It is dropped, and the response says that the effect is unknown. The default.
    #[default]
    Cancel,
    /// It continues, and checks [`HeldLock`](crate::HeldLock) itself.
    Continue,
}

/// What happens to requests whose method is safe: `GET`, `HEAD`, `OPTIONS` and `TRACE`.
///
/// `Pass` is for services that route by method, like axum. Other services, such as those of tonic, run the
/// same handler for every method, so a client could avoid the lock with another method. They need
/// `Exclusive`.
///
/// The example of [`KeyLockLayer`](crate::KeyLockLayer) sets it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SafeMethods {
    /// They take the lock, or a permit, like the others.
    Exclusive,
    /// They pass without a lock. The default.
    #[default]
    Pass,
    /// They share the lock, and exclude other requests. The backend must have shared locks, and the locker
    /// no permits.
    Shared,
}
