use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use polylock_core::engine::Engine;
use polylock_core::layers::LocalQueue;
use polylock_core::memory::Memory;
use polylock_core::{FencingToken, LockKey};
use polylock_tower::idempotency::{
    ExecutionId, Fingerprint, Idempotency, IdempotencyLayer, KeyScope, MemoryResponses, Put,
    ResponseStore, StoreError, StoredResponse,
};
use polylock_tower::{Locker, LockerBuilder};
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, service_fn};

use crate::support::break_lock;

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

    pub(crate) async fn break_lock(&self, key: &str) {
        break_lock(&self.memory, format!("pay:/{key}")).await;
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
    statuses: Arc<Mutex<VecDeque<StatusCode>>>,
}

impl Payments {
    /// The first one is answered with another status than 201.
    pub(crate) fn failing(status: u16) -> Self {
        let status = StatusCode::from_u16(status).expect("a status");
        let statuses = Arc::new(Mutex::new([status].into()));
        Self {
            statuses,
            ..Self::default()
        }
    }

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

pub(crate) fn post(key: &str) -> Request<Full<Bytes>> {
    let request = Request::post("/payments").header("idempotency-key", key);
    request.body(Full::from("10 euros")).expect("a request")
}

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("it is right")
}

/// What is stored of a response; the same number is the same run.
pub(crate) fn response(number: u8, body: Option<Bytes>) -> StoredResponse {
    let latin = HeaderValue::from_bytes(b"caf\xe9").expect("it is right");
    let response = Response::builder()
        .status(201)
        .header("location", format!("/payments/{number}"))
        .header("x-note", latin)
        .body(body)
        .expect("it is right");
    let run = ExecutionId::from_bytes([number; 16]);
    StoredResponse::new(Fingerprint::from_bytes([number; 32]), run, &response)
}

pub(crate) async fn put(
    store: &dyn ResponseStore,
    key: &LockKey,
    response: &StoredResponse,
    token: Option<u64>,
    retention: Duration,
) -> Put {
    let token = token.map(FencingToken::new);
    let put = store.put(key, response, token, retention).await;
    put.expect("the store works")
}
