use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use http::request::{Builder, Parts};
use http::{HeaderValue, Request, Response};
use lock_core::admin::LockAdmin;
use lock_core::memory::Memory;
use lock_core::{AcquireRequest, Capabilities, DistributedLock, LockGuard, Result};
use lock_tower::keys::{Cookie, Header, QueryParam};
use lock_tower::{HeldLock, KeyExtractor, KeyLockLayer, Keys, Locker};
use tower::{Layer as _, service_fn};

use crate::support::{Said, send};

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
    pub(crate) async fn send(&self, extractor: impl KeyExtractor, request: Request<()>) -> Said {
        let handled = Arc::clone(&self.handled);
        let handler = service_fn(move |request: Request<()>| {
            handled.fetch_add(1, Ordering::Relaxed);
            let held = request.extensions().get::<HeldLock>();
            let keys = held.into_iter().flat_map(HeldLock::keys);
            let keys: Vec<_> = keys.map(ToString::to_string).collect();
            async move { Ok::<_, std::convert::Infallible>(Response::new(keys.join("\n"))) }
        });
        let layer = KeyLockLayer::new(self.locker.clone(), extractor);
        send(&layer.layer(handler), request).await
    }

    /// Sends a request that is served, and expects the backend to be asked for its keys exactly.
    pub(crate) async fn key(extractor: impl KeyExtractor, request: Request<()>) -> String {
        let bench = Self::new();
        let said = bench.send(extractor, request).await;
        assert_eq!(said.status, 200, "{said:?}");
        assert_eq!(bench.locks.asked().join("\n"), said.body);
        said.body
    }

    /// Sends a request that is refused, and expects that nobody hears of it.
    pub(crate) async fn refuse(extractor: impl KeyExtractor, request: Request<()>) {
        let bench = Self::new();
        let what = format!("{:.200}", format!("{request:?}"));
        assert_eq!(bench.send(extractor, request).await.status, 400, "{what}");
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
        let bench = Self::new();
        let keys = extractor.keys(&first.into_parts().0).expect("it has a key");
        let Keys::One(name) = keys else {
            panic!("{keys:?}")
        };
        let held = bench.locker.lock(name).await.expect("it is free");
        let said = bench.send(extractor, second).await;
        held.release().await.expect("memory answers");
        match said.status {
            200 => false,
            409 => true,
            other => panic!("answered with {other}"),
        }
    }
}

/// The extractors of most tests, each of which looks for the same name.
pub(crate) fn header() -> Header {
    Header::new("x-key").expect("a name")
}

pub(crate) fn cookie() -> Cookie {
    Cookie::new("key").expect("a name")
}

pub(crate) fn query() -> QueryParam {
    QueryParam::new("key")
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

/// A request with one header.
pub(crate) fn with(name: &str, value: impl AsRef<[u8]>) -> Request<()> {
    done(post("/").header(name, bytes(value)))
}

/// A request with this query.
pub(crate) fn asking(query: &str) -> Request<()> {
    done(post(&format!("/?{query}")))
}
