use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, StatusCode};
use tower_layer::Layer;

use crate::layer::options::{CommonOptions, OnDisconnect};
use crate::locker::Locker;
use crate::rejection::{Reason, RejectionResponder};

use super::{Idempotency, KeyScope, ResponseStore};

/// Handles a request once, and replays its stored response to repetitions.
///
/// Responses are stored under the keys of the locks, so lockers that share a namespace and a store share
/// responses. The namespace in the URL of the lock service does not separate them: use
/// `RedisResponses::with_namespace`, or another table. The handler finds a [`HeldLock`](crate::HeldLock) and a
/// [`PendingResponse`](super::PendingResponse) in the extensions of the request. It must not release the
/// lock: its response is stored under it.
///
/// Put a [`KeyLockLayer`](crate::KeyLockLayer) for the same requests inside of this layer: repetitions then do
/// not wait for its locks, and its rejections are not stored.
///
/// Use it for responses that end: a response is read and stored before the client sees any of it. Do not
/// use it for gRPC calls: their status is in trailers, which are not stored. Without a key they pass or are
/// rejected as any `POST`; with one they get `INTERNAL` (`Misconfigured`).
///
/// The inner service gets the request body in one piece, so the type of its body must be `From<Bytes>`: that of
/// axum is, `hyper::body::Incoming` and the body of tonic are not.
///
/// # Memory
///
/// The body of a request with a key is read before the locker counts the request, so the limits of the locker on
/// waiters and keys do not bound how many bodies are in memory, and a request that gets 429 has sent its body. At
/// worst, each concurrent request takes about twice the [max size](IdempotencyLayer::with_max_request_body) of a
/// body: 1,000 clients that send slowly take 2 GiB. While a request is handled, its response adds as much. Put a
/// concurrency limit and a timeout outside of this layer. A handler that
/// [runs on](IdempotencyLayer::with_on_disconnect) without its client no longer counts there: a timeout inside of
/// the layer bounds it.
///
/// # Cancel safety
///
/// A future that is dropped before the lock is held leaves the queue, and nothing has happened. Afterwards
/// the handler runs to completion in its own task and its response is stored, so that a disconnected client
/// finds it on a retry: see [`with_on_disconnect`](IdempotencyLayer::with_on_disconnect). A runtime that
/// shuts down ends such tasks.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
///
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use polylock_core::memory::Memory;
/// use polylock_tower::idempotency::{IdempotencyLayer, KeyScope, MemoryResponses, MissingKey};
/// use polylock_tower::{KeyError, Locker};
/// use tower::{Layer as _, ServiceExt as _, service_fn};
///
/// /// Whose request it is; the authentication puts it there.
/// #[derive(Clone)]
/// struct Account(String);
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let payments = Locker::builder(Arc::new(Memory::new()), "payments").try_only().build()?;
/// let accounts = KeyScope::per_client(|parts| match parts.extensions.get::<Account>() {
///     Some(Account(name)) => Ok(name.clone()),
///     None => Err(KeyError::Missing("the client is unknown".to_owned())),
/// });
/// let store = Arc::new(MemoryResponses::new());
/// let service = IdempotencyLayer::new(payments, store.clone(), accounts)?
///     .with_missing(MissingKey::Pass)
///     .layer(service_fn(|_: Request<Full<Bytes>>| async {
///         Ok::<_, Infallible>(Response::new("paid".to_owned()))
///     }));
///
/// let pay = || {
///     let request = Request::post("/pay").extension(Account("ann".to_owned()));
///     request.header("idempotency-key", "8e03").body(Full::from("100 EUR"))
/// };
/// service.clone().oneshot(pay()?).await?;
/// let repeated = service.oneshot(pay()?).await?; // does not reach the handler
/// assert_eq!(repeated.headers()["idempotent-replayed"], "true");
/// assert_eq!(store.len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer {
    pub(super) options: Arc<IdempotencyOptions>,
}

/// What happens to requests without a key. Requests with an empty or invalid key are always rejected.
///
/// The example of [`IdempotencyLayer`] sets it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum MissingKey {
    /// They are handled as if there were no layer; each repetition is handled again.
    Pass,
    /// They are answered with 400. The default.
    #[default]
    Reject,
}

impl IdempotencyLayer {
    /// Makes a layer that locks the keys of `POST` and `PATCH` requests by `locker`.
    ///
    /// `scope` says whether clients share their keys, for which there is no safe default. Put the layer
    /// inside the authentication, timeout and [concurrency limit](IdempotencyLayer#memory) layers.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the locker has
    /// [permits](crate::LockerBuilder::permits): two requests with one key would be handled at once.
    pub fn new(
        locker: Locker,
        store: Arc<dyn ResponseStore>,
        scope: KeyScope,
    ) -> polylock_core::Result<Self> {
        locker.expect_exclusive("a request is handled once under an exclusive lock")?;
        locker.announce(Reason::OF_IDEMPOTENCY);
        Ok(Self {
            options: Arc::new(IdempotencyOptions {
                common: CommonOptions::new(locker, OnDisconnect::RunToCompletion),
                store,
                methods: vec![Method::POST, Method::PATCH],
                scope,
                missing: MissingKey::default(),
                stored: Arc::new(is_final),
                retention: Duration::from_secs(24 * 60 * 60),
                max_request: 1 << 20,
                max_response: 1 << 20,
                store_timeout: Duration::from_secs(5),
            }),
        })
    }

    fn change(mut self, change: impl FnOnce(&mut IdempotencyOptions)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self
    }

    /// Sets which methods need a key; others pass. Default: `POST` and `PATCH`.
    #[must_use]
    pub fn with_methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = methods.into_iter().collect();
        self.change(|options| options.methods = methods)
    }

    /// Sets what happens to requests without a key. Default: [`MissingKey::Reject`].
    #[must_use]
    pub fn with_missing(self, then: MissingKey) -> Self {
        self.change(|options| options.missing = then)
    }

    /// Sets which responses are stored. Other responses are streamed, and repetitions of their requests are
    /// handled again. Stored responses are read to their end under the lock.
    ///
    /// Default: all except responses that ask for a retry (5xx, 408, 425, 429, and every other 4xx with
    /// `Retry-After`), and except 401 and 403: a client that gains access later would be rejected until the
    /// stored response expires.
    ///
    /// A rejection of an inner layer of this crate is never stored, whatever its status.
    #[must_use]
    pub fn with_stored(
        self,
        stored: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.change(|options| options.stored = Arc::new(stored))
    }

    /// Sets for how long a response is stored. Default: 24 h.
    ///
    /// It must be longer than clients retry: a later repetition is handled as a new request.
    #[must_use]
    pub fn with_retention(self, time: Duration) -> Self {
        self.change(|options| options.retention = time)
    }

    /// Sets the max size of a request body in bytes. Default: 1 MiB. Larger bodies are rejected with 413.
    ///
    /// The body is read before the lock is acquired, so that a slow client delays no other. Its buffer grows to
    /// about twice its size at most: see [Memory](IdempotencyLayer#memory).
    #[must_use]
    pub fn with_max_request_body(self, bytes: usize) -> Self {
        self.change(|options| options.max_request = bytes)
    }

    /// Sets the max size of a stored response body in bytes. Default: 1 MiB.
    ///
    /// A larger body is streamed to the client, and the store only records that there was one. Repetitions
    /// get 409, because handling them again would not be safe.
    #[must_use]
    pub fn with_max_response_body(self, bytes: usize) -> Self {
        self.change(|options| options.max_response = bytes)
    }

    /// Sets the timeout of the store, for a lookup and for a write. Default: 5 s.
    ///
    /// A write that fails, or gets no reply within two thirds of the time that is left, is repeated after 50 to
    /// 400 ms; the client waits, and the lock is held meanwhile. In the last quarter of the timeout a store that
    /// refuses the response is also asked to record that there was one, as for a [larger
    /// body](Self::with_max_response_body). A lookup is repeated if it gets no reply, and not if it fails. A store that needs more than half of this timeout for a write, such as for a new
    /// connection, may never store a response.
    #[must_use]
    pub fn with_store_timeout(self, limit: Duration) -> Self {
        self.change(|options| options.store_timeout = limit)
    }

    /// Sets what happens to handlers whose client has disconnected. Default:
    /// [`OnDisconnect::RunToCompletion`]: the client will retry with the same key, and half-done work must
    /// not be repeated.
    ///
    /// With [`OnDisconnect::Cancel`], a repetition is handled again. A response that the handler has returned
    /// is read and stored all the same, under the lock.
    #[must_use]
    pub fn with_on_disconnect(self, then: OnDisconnect) -> Self {
        self.change(|options| options.common.on_disconnect = then)
    }

    /// Sets how rejections are answered. Default: [`ProblemDetails`](crate::ProblemDetails).
    #[must_use]
    pub fn with_responder(self, responder: impl RejectionResponder) -> Self {
        self.change(|options| options.common.responder = Arc::new(responder))
    }

    /// Returns the locker, with the limits and the queue of this layer.
    #[must_use]
    pub fn locker(&self) -> &Locker {
        &self.options.common.locker
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency {
            inner,
            layer: self.clone(),
        }
    }
}

/// The options of an [`IdempotencyLayer`]. All services of it share one.
#[derive(Clone)]
pub(super) struct IdempotencyOptions {
    pub(super) common: CommonOptions,
    pub(super) store: Arc<dyn ResponseStore>,
    pub(super) methods: Vec<Method>,
    pub(super) scope: KeyScope,
    pub(super) missing: MissingKey,
    pub(super) stored: Arc<IsStored>,
    pub(super) retention: Duration,
    pub(super) max_request: usize,
    pub(super) max_response: usize,
    pub(super) store_timeout: Duration,
}

type IsStored = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;

/// Whether a response is final, and does not ask for a retry, with other credentials or later.
fn is_final(status: StatusCode, headers: &HeaderMap) -> bool {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => false,
        status if status.is_client_error() => !headers.contains_key(RETRY_AFTER),
        status => !status.is_server_error(),
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("locker", self.locker())
            .field("methods", &self.options.methods)
            .field("scope", &self.options.scope)
            .field("missing", &self.options.missing)
            .finish_non_exhaustive()
    }
}
