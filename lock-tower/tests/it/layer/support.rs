use std::convert::Infallible;
use std::sync::Arc;

use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use lock_core::engine::Engine;
use lock_core::layers::LocalQueue;
use lock_core::memory::Memory;
use lock_core::{DistributedLock, DistributedLockExt as _, LockGuard, LockKey};
use lock_tower::{HeldLock, KeyError, KeyLockLayer, Keys, LockBody, Locker, LockerBuilder};
use tower::util::BoxCloneService;
use tower::{ServiceExt as _, service_fn};

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

    pub(crate) fn locker(&self) -> Locker {
        self.builder().build().expect("memory serves this")
    }

    pub(crate) fn layer(&self) -> KeyLockLayer {
        by_path(self.locker())
    }

    /// Takes the lock of a path, as another process would, if it is free.
    pub(crate) async fn try_elsewhere(&self, path: &str) -> Option<LockGuard> {
        let taken = self.memory.try_lock(stored(path)).await;
        taken.expect("memory answers")
    }

    /// As an operator does.
    pub(crate) async fn break_lock(&self, path: &str) {
        let key = LockKey::new(stored(path)).expect("a key");
        let admin = self.memory.admin().expect("memory has one");
        let broken = admin.break_lock(&key, "a test").await;
        broken.expect("memory answers").expect("it was held");
    }

    pub(crate) async fn is_free(&self, path: &str) -> bool {
        match self.try_elsewhere(path).await {
            Some(guard) => guard.release().await.is_ok(),
            None => false,
        }
    }
}

/// The key of a path as the lock service has it.
pub(crate) fn stored(path: &str) -> String {
    format!("test:{path}")
}

pub(crate) fn by_path(locker: Locker) -> KeyLockLayer {
    KeyLockLayer::new(locker, path)
}

fn path(parts: &Parts) -> Result<Keys, KeyError> {
    Ok(Keys::one(parts.uri.path()))
}

pub(crate) type Handler = BoxCloneService<Request<String>, Response<String>, Infallible>;

/// A handler that gets the lock of its request.
pub(crate) fn handler<F, W>(work: F) -> Handler
where
    F: Fn(HeldLock) -> W + Clone + Send + 'static,
    W: Future<Output = &'static str> + Send + 'static,
{
    let handler = service_fn(move |request: Request<String>| {
        let held = request.extensions().get::<HeldLock>().cloned();
        let work = work(held.expect("the layer has put it there"));
        async move { Ok(Response::new(work.await.to_owned())) }
    });
    handler.boxed_clone()
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

/// Reads a short body.
pub(crate) async fn text(response: Response<LockBody<String>>) -> String {
    let body = response.into_body().collect().await.expect("it is there");
    String::from_utf8_lossy(&body.to_bytes()).into_owned()
}

/// Lets everybody else go on until nobody can.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
