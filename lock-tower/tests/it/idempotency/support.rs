use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use lock_core::engine::Engine;
use lock_core::layers::LocalQueue;
use lock_core::memory::Memory;
use lock_core::{DistributedLock as _, FencingToken, LockKey};
use lock_tower::idempotency::{
    Idempotency, IdempotencyLayer, KeyScope, MemoryResponses, Put, ResponseStore, StoreError,
    StoredResponse,
};
use lock_tower::{Locker, LockerBuilder};
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::InTime as _;

/// A lock service, a store, and what goes wrong with them.
pub(crate) struct Scene {
    pub(crate) memory: Memory,
    pub(crate) store: Arc<Store>,
}

impl Scene {
    /// On the clock of the current runtime, which may stand still.
    pub(crate) fn new() -> Self {
        Self {
            memory: Memory::with_engine(Engine::on_current_runtime("memory")),
            store: Arc::default(),
        }
    }

    /// A layer as another process would have it, whose requests do not wait.
    pub(crate) fn layer(&self) -> IdempotencyLayer {
        self.layer_with(LockerBuilder::try_only)
    }

    /// A layer with another scope.
    pub(crate) fn layer_in(&self, scope: KeyScope) -> IdempotencyLayer {
        self.layer_of(LockerBuilder::try_only, scope)
    }

    pub(crate) fn layer_with(
        &self,
        options: impl FnOnce(LockerBuilder) -> LockerBuilder,
    ) -> IdempotencyLayer {
        self.layer_of(options, KeyScope::shared())
    }

    fn layer_of(
        &self,
        options: impl FnOnce(LockerBuilder) -> LockerBuilder,
        scope: KeyScope,
    ) -> IdempotencyLayer {
        let locks = Arc::new(LocalQueue::new(Arc::new(self.memory.client())));
        let locker = options(Locker::builder(locks, "pay")).build();
        let locker = locker.expect("memory serves this");
        let store = Arc::clone(&self.store) as Arc<dyn ResponseStore>;
        IdempotencyLayer::new(locker, store, scope)
    }

    /// Takes the lock of a key from whoever has it.
    pub(crate) async fn break_lock(&self, key: &str) {
        let admin = self.memory.admin().expect("memory has one");
        let key = LockKey::new(format!("pay:/{key}")).expect("a key");
        let broken = admin.break_lock(&key, "a test").await;
        broken.expect("memory answers").expect("it was held");
    }
}

/// A store that can be down.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) kept: MemoryResponses,
    pub(crate) is_unreadable: AtomicBool,
    pub(crate) is_unwritable: AtomicBool,
    pub(crate) is_stuck: AtomicBool,
    pub(crate) refuses: AtomicBool,
    /// So many puts are not answered, though every second of them is done.
    pub(crate) loses: AtomicUsize,
    /// How often somebody has looked.
    pub(crate) looks: AtomicUsize,
}

#[async_trait]
impl ResponseStore for Store {
    async fn get(&self, key: &LockKey) -> Result<Option<StoredResponse>, StoreError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        if self.is_stuck.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.is_unreadable.load(Ordering::SeqCst) {
            return Err(StoreError::new("the store is down"));
        }
        self.kept.get(key).await
    }

    async fn put(
        &self,
        key: &LockKey,
        response: &StoredResponse,
        token: Option<FencingToken>,
        retention: Duration,
    ) -> Result<Put, StoreError> {
        if self.is_unwritable.load(Ordering::SeqCst) {
            return Err(StoreError::new("the store is down"));
        }
        if self.refuses.load(Ordering::SeqCst) {
            return Ok(Put::Refused);
        }
        let lose = |n: usize| n.checked_sub(1);
        let lost = self
            .loses
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose);
        let is_lost_before = lost.is_ok_and(|n| n % 2 == 0);
        if is_lost_before {
            return Err(StoreError::new("the store is away"));
        }
        let put = self.kept.put(key, response, token, retention).await;
        match lost {
            Ok(_) => Err(StoreError::new("the answer is away")),
            Err(_) => put,
        }
    }
}

pub(crate) type Handler =
    BoxCloneSyncService<Request<Full<Bytes>>, Response<Full<Bytes>>, Infallible>;
pub(crate) type Layered = Idempotency<Handler>;

/// A handler that counts how often it has begun, and answers with that number.
#[derive(Clone, Default)]
pub(crate) struct Payments {
    begun: Arc<AtomicUsize>,
    /// What it answers in turn; 201 after that.
    pub(crate) statuses: Arc<Mutex<VecDeque<StatusCode>>>,
}

impl Payments {
    pub(crate) fn charged(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub(crate) fn behind(&self, layer: &IdempotencyLayer) -> Layered {
        self.slow(layer, Duration::ZERO)
    }

    /// Takes a time, after it is counted.
    pub(crate) fn slow(&self, layer: &IdempotencyLayer, time: Duration) -> Layered {
        let payments = self.clone();
        let handler = service_fn(move |_: Request<Full<Bytes>>| {
            let payments = payments.clone();
            async move {
                let charge = payments.begun.fetch_add(1, Ordering::SeqCst) + 1;
                if !time.is_zero() {
                    tokio::time::sleep(time).await;
                }
                let status = payments.statuses.lock().expect("no panics").pop_front();
                let response = Response::builder()
                    .status(status.unwrap_or(StatusCode::CREATED))
                    .header("location", format!("/payments/{charge}"))
                    .header("set-cookie", "session=1")
                    .body(Full::from(format!("charge {charge}")));
                Ok(response.expect("a response"))
            }
        });
        layer.layer(Handler::new(handler))
    }
}

/// What a client sees.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn is_replayed(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|value| value == "true")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("a header of text"))
    }

    /// Expects a problem document with this reason.
    #[track_caller]
    pub(crate) fn assert_refused(&self, status: u16, reason: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).expect("JSON");
        assert_eq!(problem["status"], status, "{self:?}");
        assert_eq!(problem["reason"], reason, "{self:?}");
    }
}

pub(crate) fn post(key: &str) -> Request<Full<Bytes>> {
    let request = Request::post("/payments").header("idempotency-key", key);
    request.body(Full::from("10 euros")).expect("a request")
}

pub(crate) async fn send(service: &Layered, request: Request<Full<Bytes>>) -> Seen {
    let response = service.clone().oneshot(request).answered().await;
    let (head, body) = response.expect("it never fails").into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Seen {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).expect("a text"),
    }
}
