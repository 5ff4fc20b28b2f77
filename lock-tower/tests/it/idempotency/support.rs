use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use polylock_core::layers::LocalQueue;
use polylock_core::memory::Memory;
use polylock_core::{FencingToken, LockKey};
use polylock_tower::idempotency::{
    Idempotency, IdempotencyLayer, KeyScope, MemoryResponses, Put, ResponseStore, StoreError,
    StoredResponse,
};
use polylock_tower::{Locker, LockerBuilder};
use tokio::sync::Notify;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, service_fn};

/// A lock service and a store.
pub(crate) struct Scene {
    pub(crate) memory: Memory,
    pub(crate) store: Arc<Store>,
}

impl Scene {
    /// On the clock of the current runtime, which may stand still.
    pub(crate) fn new() -> Self {
        Self {
            memory: crate::support::Scene::new().memory,
            store: Arc::default(),
        }
    }

    /// A layer as another process would have it, whose requests do not wait.
    pub(crate) fn layer(&self) -> IdempotencyLayer {
        self.layer_with(LockerBuilder::try_only)
    }

    pub(crate) fn layer_with(
        &self,
        options: impl FnOnce(LockerBuilder) -> LockerBuilder,
    ) -> IdempotencyLayer {
        self.layer_of(options, KeyScope::shared())
    }

    pub(crate) fn layer_of(
        &self,
        options: impl FnOnce(LockerBuilder) -> LockerBuilder,
        scope: KeyScope,
    ) -> IdempotencyLayer {
        let locks = Arc::new(LocalQueue::new(Arc::new(self.memory.client())));
        let locker = options(Locker::builder(locks, "pay")).build();
        let store = Arc::clone(&self.store) as Arc<dyn ResponseStore>;
        let layer = IdempotencyLayer::new(locker.expect("memory serves this"), store, scope);
        layer.expect("the locker has no permits")
    }
}

/// A store that can be down.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) kept: MemoryResponses,
    fault: Mutex<StoreFault>,
    /// The number of lookups.
    pub(crate) looks: AtomicUsize,
    /// The number of puts.
    pub(crate) puts: AtomicUsize,
    /// Lets a put go on that waits.
    pub(crate) gate: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum StoreFault {
    /// So many puts are not answered, though every second of them is done.
    LosesPuts(usize),
    #[default]
    None,
    RefusesPuts,
    /// Does not answer lookups.
    Silent,
    /// Does not answer one lookup.
    SilentLookup,
    /// Does not answer one put.
    SilentPut,
    /// Takes no response of more bytes.
    SmallPuts(usize),
    /// Puts take this long, and do nothing if they are dropped before.
    SlowPuts(Duration),
    Unreadable,
    Unwritable,
    /// Puts wait at the gate.
    WaitingPuts,
}

impl Store {
    pub(crate) fn set(&self, fault: StoreFault) {
        *self.fault.lock().expect("no panic") = fault;
    }

    fn fault(&self) -> StoreFault {
        *self.fault.lock().expect("no panic")
    }
}

#[async_trait]
impl ResponseStore for Store {
    async fn get(&self, key: &LockKey) -> Result<Option<StoredResponse>, StoreError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        match self.fault() {
            StoreFault::Silent => std::future::pending().await,
            StoreFault::SilentLookup => {
                self.set(StoreFault::None);
                std::future::pending().await
            }
            StoreFault::Unreadable => Err(StoreError::new("the store is down")),
            _ => self.kept.get(key).await,
        }
    }

    async fn put(
        &self,
        key: &LockKey,
        response: &StoredResponse,
        token: Option<FencingToken>,
        retention: Duration,
    ) -> Result<Put, StoreError> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        match self.fault() {
            StoreFault::LosesPuts(left @ 1..) => {
                self.set(StoreFault::LosesPuts(left - 1));
                if !left.is_multiple_of(2) {
                    self.kept.put(key, response, token, retention).await?;
                }
                return Err(StoreError::new("the answer is away"));
            }
            StoreFault::RefusesPuts => return Ok(Put::Refused),
            StoreFault::SilentPut => {
                self.set(StoreFault::None);
                std::future::pending::<()>().await;
            }
            StoreFault::SmallPuts(most) if response.to_bytes().len() > most => {
                return Err(StoreError::new("the packet is too large"));
            }
            StoreFault::SlowPuts(time) => tokio::time::sleep(time).await,
            StoreFault::Unwritable => return Err(StoreError::new("the store is down")),
            StoreFault::WaitingPuts => self.gate.notified().await,
            _ => {}
        }
        self.kept.put(key, response, token, retention).await
    }
}

pub(crate) type Handler =
    BoxCloneSyncService<Request<Full<Bytes>>, Response<Full<Bytes>>, Infallible>;
pub(crate) type Layered = Idempotency<Handler>;

/// A handler that counts how often it has begun, and answers with that number.
#[derive(Clone, Default)]
pub(crate) struct Payments {
    begun: Arc<AtomicUsize>,
    /// What it answers first; 201 after that.
    first: Option<u16>,
}

impl Payments {
    /// The first one is answered with another status than 201.
    pub(crate) fn failing(status: u16) -> Self {
        Self {
            first: Some(status),
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
                let first = payments.first.filter(|_| charge == 1);
                let response = Response::builder()
                    .status(first.unwrap_or(201))
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
    StoredResponse::new(number.into(), [number; 32], &response)
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
