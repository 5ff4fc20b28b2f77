use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::request::{Builder, Parts};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use lock_core::admin::LockAdmin;
use lock_core::memory::Memory;
use lock_core::{AcquireRequest, Capabilities, DistributedLock, LockGuard, Result};
use lock_tower::{HeldLock, KeyExtractor, KeyLockLayer, Locker};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::InTime as _;

/// Locks in memory that remember which keys they were asked for.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    memory: Memory,
    asked: Mutex<Vec<String>>,
}

impl Counted {
    pub(crate) fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.clone()
    }

    fn note(&self, request: &AcquireRequest) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(request.key().to_string());
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Counted {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.note(request);
        self.memory.acquire(request).await
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<Vec<LockGuard>> {
        requests.iter().for_each(|request| self.note(request));
        self.memory.acquire_all(requests).await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        self.memory.admin()
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.memory.shutdown(within).await
    }
}

/// A layer on counted locks, which lets nobody wait.
pub(crate) struct Bench {
    pub(crate) locks: Arc<Counted>,
    pub(crate) locker: Locker,
    handled: Arc<AtomicUsize>,
}

/// The namespace of a [`Bench`].
pub(crate) const NAMESPACE: &str = "ns";

impl Bench {
    pub(crate) fn new() -> Self {
        let locks = Arc::new(Counted::default());
        let shared = Arc::clone(&locks) as Arc<dyn DistributedLock>;
        let locker = Locker::builder(shared, NAMESPACE).try_only().build();
        Self {
            locks,
            locker: locker.expect("a locker"),
            handled: Arc::default(),
        }
    }

    /// Sends a request through the layer to a handler that answers with its keys.
    pub(crate) async fn send(
        &self,
        extractor: impl KeyExtractor,
        request: Request<()>,
    ) -> (StatusCode, String) {
        let handled = Arc::clone(&self.handled);
        let handler = service_fn(move |request: Request<()>| {
            handled.fetch_add(1, Ordering::Relaxed);
            async move { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(keys_of(&request)))) }
        });
        let service = KeyLockLayer::new(self.locker.clone(), extractor).layer(handler);
        let response = service
            .oneshot(request)
            .answered()
            .await
            .expect("infallible");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body");
        let body = String::from_utf8(body.to_bytes().into()).expect("text");
        (status, body)
    }

    /// Sends a request that is served, and expects the backend to be asked for its keys exactly.
    pub(crate) async fn key(extractor: impl KeyExtractor, request: Request<()>) -> String {
        let bench = Self::new();
        let (status, keys) = bench.send(extractor, request).await;
        assert_eq!(status, StatusCode::OK, "{keys}");
        assert_eq!(bench.locks.asked().join("\n"), keys);
        keys
    }

    /// Sends a request that is refused, and expects that nobody hears of it.
    pub(crate) async fn refuse(extractor: impl KeyExtractor, request: Request<()>) {
        let bench = Self::new();
        let what = format!("{:.200}", format!("{request:?}"));
        let (status, _) = bench.send(extractor, request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{what}");
        assert!(bench.locks.asked().is_empty(), "{what}");
        assert_eq!(bench.handled.load(Ordering::Relaxed), 0, "{what}");
        assert_eq!(bench.locker.live_keys(), 0, "{what}");
    }

    /// Whether the second request is refused for as long as the first one is handled.
    pub(crate) async fn excludes(
        extractor: impl KeyExtractor + Clone,
        first: Request<()>,
        second: Request<()>,
    ) -> bool {
        let bench = Arc::new(Self::new());
        let second = Arc::new(Mutex::new(Some(second)));
        let (within, keys) = (Arc::clone(&bench), extractor.clone());
        let outside = service_fn(move |_: Request<()>| {
            let second = second.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (bench, keys) = (Arc::clone(&within), keys.clone());
            async move {
                let (status, _) = bench.send(keys, second.expect("called once")).await;
                let mut response = Response::new(Full::<Bytes>::default());
                *response.status_mut() = status;
                Ok::<_, Infallible>(response)
            }
        });
        let service = KeyLockLayer::new(bench.locker.clone(), extractor).layer(outside);
        let response = service.oneshot(first).answered().await.expect("infallible");
        match response.status() {
            StatusCode::OK => false,
            StatusCode::CONFLICT => true,
            other => panic!("answered with {other}"),
        }
    }
}

pub(crate) fn keys_of(request: &Request<()>) -> String {
    let held = request.extensions().get::<HeldLock>();
    let keys = held.into_iter().flat_map(HeldLock::keys);
    keys.map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

pub(crate) fn post(uri: &str) -> Builder {
    Request::post(uri)
}

pub(crate) fn done(request: Builder) -> Request<()> {
    request.body(()).expect("a request")
}

pub(crate) fn head(request: Builder) -> Parts {
    done(request).into_parts().0
}

pub(crate) fn bytes(value: impl AsRef<[u8]>) -> HeaderValue {
    HeaderValue::from_bytes(value.as_ref()).expect("a value of a header")
}
