//! What is measured: one route, alone, behind a mutex and behind the layer.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::post;
use lock_core::memory::MemoryBackend;
use lock_core::{DistributedLock, Registry};
use lock_tower::{KeyLockLayer, Keys, Locker};
use tokio::sync::Mutex;

pub(crate) const REQUEST: &str = "/work/";

async fn work() -> &'static str {
    "done"
}

pub(crate) fn bare() -> Router {
    Router::new().route("/work/{key}", post(work))
}

/// The handler behind one mutex of this process.
pub(crate) fn behind_a_mutex() -> Router {
    let mutex = Arc::new(Mutex::new(()));
    let handler = move || {
        let mutex = Arc::clone(&mutex);
        async move {
            let _alone = mutex.lock().await;
            work().await
        }
    };
    Router::new().route("/work/{key}", post(handler))
}

pub(crate) fn locked(locks: Arc<dyn DistributedLock>) -> Router {
    let locker = Locker::builder(locks, "work")
        .wait(Duration::from_secs(30))
        .max_waiters_per_key(1_000)
        .build()
        .unwrap();
    bare().layer(KeyLockLayer::from_extractor::<Path<String>, _>(
        locker,
        |Path(key)| Keys::one(key),
    ))
}

pub(crate) async fn connect(url: &str) -> Arc<dyn DistributedLock> {
    registry().connect(url).await.unwrap()
}

/// The backend without its layers.
pub(crate) async fn connect_bare(url: &str) -> Arc<dyn DistributedLock> {
    registry().connect_bare(url).await.unwrap()
}

fn registry() -> Registry {
    Registry::new()
        .with(MemoryBackend::default())
        .and_then(|registry| registry.with(lock_redis::RedisBackend::default()))
        .and_then(|registry| registry.with(lock_sql::PostgresBackend::default()))
        .and_then(|registry| registry.with(lock_sql::SqliteBackend::default()))
        .and_then(|registry| registry.with(lock_zk::ZooKeeperBackend::default()))
        .unwrap()
}
