//! The options of a layer, their values and their defaults.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use http::Response;

use crate::keys::KeyExtractor;
use crate::locker::Locker;
use crate::plain::CallError;
use crate::rejection::{
    ProblemDetails, Rejection, RejectionObserver, RejectionResponder, RequestInfo,
};
use crate::service::to_completion;

use super::body::LockBody;

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
    /// case, and if the lock is lost, the rest of the body is an error, or of a gRPC stream the status
    /// `DEADLINE_EXCEEDED` or `ABORTED`. A body that is not polled lives on until its connection ends,
    /// without the lock. If the [max hold](crate::LockerBuilder::request) of the locker is over earlier, the
    /// lock is lost.
    BodyEnd {
        /// Max time for the body.
        max: Duration,
    },
    /// When the handler is done, before the client sees the head of its response, so that the client's next
    /// request does not find its own lock held. The default.
    #[default]
    Handler,
    /// When [`HeldLock::release`](crate::HeldLock::release) is called, or the last clone of the
    /// [`HeldLock`](crate::HeldLock) is dropped. The layer keeps a clone until the handler is done.
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
    /// It runs to completion in its own task, and keeps the lock until then. The handler does not see the task-locals
    /// of outer layers there. A request that needs no lock
    /// ([`Keys::Skip`](crate::Keys::Skip), a safe method, no idempotency key) is not run to completion. The
    /// default of [`IdempotencyLayer`](crate::idempotency::IdempotencyLayer).
    RunToCompletion,
}

impl OnDisconnect {
    /// Runs a handler, whether or not its client stays.
    pub(crate) fn run<W>(self, handler: W) -> impl Future<Output = W::Output> + Send
    where
        W: Future<Output: Send> + Send + 'static,
    {
        // Not an `async fn`: its future would have room for several copies of the handler.
        match self {
            Self::Cancel => Either::Left(handler),
            Self::RunToCompletion => Either::Right(to_completion(handler)),
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

/// The options of a [`KeyLockLayer`](crate::KeyLockLayer). All services of it share one.
#[derive(Clone)]
pub(super) struct LayerOptions {
    pub(super) common: CommonOptions,
    pub(super) source: KeySource,
    pub(super) hold: HoldUntil,
    pub(super) on_lost: OnLost,
    pub(super) safe_methods: SafeMethods,
    pub(super) server_timing: bool,
    pub(super) fencing_token: bool,
}

/// Where keys come from.
#[derive(Clone)]
pub(super) enum KeySource {
    #[cfg(feature = "axum")]
    Axum(Arc<crate::axum::ReadKeys>),
    Head(Arc<dyn KeyExtractor>),
}

impl LayerOptions {
    pub(super) fn new(locker: Locker, source: KeySource) -> Self {
        Self {
            common: CommonOptions::new(locker, OnDisconnect::Cancel),
            source,
            hold: HoldUntil::default(),
            on_lost: OnLost::default(),
            safe_methods: SafeMethods::default(),
            server_timing: false,
            fencing_token: false,
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
