use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::request::Parts;
use http::{Method, Request, Response};
use lock_testkit::servers::RedisServer;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::Engine;
use polylock_core::layers::LocalQueue;
use polylock_core::memory::{Memory, MemoryBackend, Reachable};
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, DistributedLockExt as _, Error, ErrorKind,
    LockGuard, LockKey, Registry, Result,
};
use polylock_redis::RedisBackend;
use polylock_tower::{HeldLock, KeyError, KeyLockLayer, Keys, Locker, LockerBuilder};
use tower::service_fn;
use tower::util::BoxCloneSyncService;

/// A lock service and one process that uses it.
pub(crate) struct Scene {
    /// A client of its own, as another process has it.
    pub(crate) memory: Memory,
    pub(crate) locks: Arc<dyn DistributedLock>,
}

impl Scene {
    /// On the clock of the current runtime, which may stand still.
    pub(crate) fn new() -> Self {
        let memory = Memory::with_engine(Engine::on_current_runtime("memory"));
        let locks = Arc::new(LocalQueue::new(Arc::new(memory.client())));
        Self { memory, locks }
    }

    pub(crate) fn builder(&self) -> LockerBuilder {
        Locker::builder(Arc::clone(&self.locks), "test")
    }

    pub(crate) fn locker_with(&self, set: impl FnOnce(LockerBuilder) -> LockerBuilder) -> Locker {
        set(self.builder()).build().expect("memory serves this")
    }

    pub(crate) fn locker(&self) -> Locker {
        self.locker_with(|locker| locker)
    }

    pub(crate) fn layer(&self) -> KeyLockLayer {
        by_path(self.locker())
    }

    /// Acquires the lock of a path, as another process would, if it is free.
    pub(crate) async fn try_elsewhere(&self, path: &str) -> Option<LockGuard> {
        let acquired = self.memory.try_lock(key_of(path)).await;
        acquired.expect("memory answers")
    }

    /// As an operator does.
    pub(crate) async fn break_lock(&self, path: &str) {
        break_lock(&self.memory, key_of(path)).await;
    }

    pub(crate) async fn is_free(&self, path: &str) -> bool {
        match self.try_elsewhere(path).await {
            Some(guard) => guard.release().await.is_ok(),
            None => false,
        }
    }

    pub(crate) fn set_reachable(&self, reachable: Reachable) {
        self.memory.faults().set_reachable(reachable);
    }
}

/// The locks of a store in memory or of a Redis.
pub(crate) async fn connect(url: &str) -> Arc<dyn DistributedLock> {
    let registry = Registry::new()
        .with(MemoryBackend::default())
        .and_then(|registry| registry.with(RedisBackend::default()))
        .expect("the schemes differ");
    registry.connect(url).await.expect("it answers")
}

/// The URL of a Redis that gets time for its replies: a busy machine may stall for longer than the default.
pub(crate) fn patient(redis: &RedisServer) -> String {
    format!("{}?timeout=10s", redis.url())
}

/// A backend of exclusive locks that fails in the same way always, and says more than a client should read.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) ErrorKind);

/// A part of keys and errors that must not appear in a response.
pub(crate) const SECRET: &str = "4711";

#[async_trait]
impl DistributedLock for Broken {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("broken")
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        let error = Error::new(self.0, format!("no route to 10.0.0.{SECRET}"));
        Err(error.with_key(request.key()))
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, _: Duration) -> bool {
        true
    }
}

/// Ends the lease of a lock that is held.
pub(crate) async fn break_lock(locks: &dyn DistributedLock, key: String) {
    let key = LockKey::new(key).expect("a key");
    let admin = locks.admin().expect("the backend has one");
    let broken = admin.break_lock(&key, "a test").await;
    broken.expect("it answers").expect("it was held");
}

/// The key of a path as the lock service has it.
pub(crate) fn key_of(path: &str) -> String {
    format!("test:{path}")
}

pub(crate) fn by_path(locker: Locker) -> KeyLockLayer {
    KeyLockLayer::new(locker, path)
}

fn path(parts: &Parts) -> Result<Keys, KeyError> {
    Ok(Keys::one(parts.uri.path()))
}

pub(crate) type Handler = BoxCloneSyncService<Request<String>, Response<String>, Infallible>;

/// A handler that gets the lock of its request.
pub(crate) fn handler<F, W>(work: F) -> Handler
where
    F: Fn(HeldLock) -> W + Clone + Send + Sync + 'static,
    W: Future<Output = &'static str> + Send + 'static,
{
    Handler::new(service_fn(move |request: Request<String>| {
        let held = request.extensions().get::<HeldLock>().cloned();
        let work = work(held.expect("the layer has put it there"));
        async move { Ok(Response::new(work.await.to_owned())) }
    }))
}

pub(crate) fn post(path: &str) -> Request<String> {
    request(Method::POST, path)
}

pub(crate) fn request(method: Method, path: &str) -> Request<String> {
    let mut request = Request::new(String::new());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().expect("a path");
    request
}
