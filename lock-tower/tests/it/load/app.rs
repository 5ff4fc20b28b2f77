use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use lock_core::memory::MemoryBackend;
use lock_core::{DistributedLock, Registry};
use lock_redis::RedisBackend;
use lock_sql::SqliteBackend;
use lock_tower::{HeldLock, KeyLockLayer, Keys, Locker, LockerBuilder, WhenUnavailable};
use serde::{Deserialize, Serialize};

use super::ledger::Ledger;

pub(crate) const REQUEST_ID: &str = "x-request-id";
/// Is there if the request ran without its lock.
pub(crate) const UNPROTECTED: &str = "x-unprotected";

/// The application of most tests, in words that another process can be told.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Setup {
    pub(crate) url: String,
    pub(crate) dir: PathBuf,
    /// How long a slow handler stays inside.
    pub(crate) work: Duration,
    pub(crate) wait: Duration,
    pub(crate) ttl: Duration,
    /// Requests run without a lock while the lock service is down.
    pub(crate) bypass: bool,
}

impl Setup {
    pub(crate) fn new(url: impl Into<String>, dir: &std::path::Path) -> Self {
        Self {
            url: url.into(),
            dir: dir.into(),
            work: Duration::ZERO,
            wait: Duration::from_secs(60),
            ttl: Duration::from_secs(10),
            bypass: false,
        }
    }

    pub(crate) async fn locker(&self) -> Locker {
        let (ttl, wait) = (self.ttl, self.wait);
        let then = match self.bypass {
            true => WhenUnavailable::Bypass,
            false => WhenUnavailable::Reject,
        };
        locker(connect(&self.url).await, |builder| {
            builder
                .wait(wait)
                .request(|request| request.with_ttl(ttl))
                .when_unavailable(then)
        })
    }

    /// `POST /work/{key}` visits the ledger under the lock of the key, and `POST /slow/{key}` stays
    /// there for a while.
    pub(crate) async fn router(&self) -> Router {
        let app = App {
            ledger: Ledger::new(&self.dir),
            work: self.work,
        };
        Router::new()
            .route("/work/{key}", post(work))
            .route("/slow/{key}", post(slow_work))
            .route_layer(by_path(self.locker().await))
            .with_state(Arc::new(app))
    }
}

/// Locks at `url`, as a program has them that reads the URL from its configuration.
pub(crate) async fn connect(url: &str) -> Arc<dyn DistributedLock> {
    let registry = Registry::new()
        .with(MemoryBackend::default())
        .and_then(|registry| registry.with(RedisBackend::default()))
        .and_then(|registry| registry.with(SqliteBackend::default()))
        .expect("the schemes differ");
    registry.connect(url).await.expect("the service answers")
}

pub(crate) fn locker(
    locks: Arc<dyn DistributedLock>,
    change: impl FnOnce(LockerBuilder) -> LockerBuilder,
) -> Locker {
    change(Locker::builder(locks, "load"))
        .build()
        .expect("the options are right")
}

/// Locks what the last part of the path names.
pub(crate) fn by_path(locker: Locker) -> KeyLockLayer {
    KeyLockLayer::from_extractor::<Path<String>, _>(locker, |Path(key)| Keys::one(key))
}

#[derive(Debug)]
struct App {
    ledger: Ledger,
    work: Duration,
}

async fn work(
    State(app): State<Arc<App>>,
    Path(key): Path<String>,
    held: HeldLock,
    headers: HeaderMap,
) -> Response {
    let between = tokio::task::yield_now();
    app.visit(&key, &held, &headers, between).await
}

async fn slow_work(
    State(app): State<Arc<App>>,
    Path(key): Path<String>,
    held: HeldLock,
    headers: HeaderMap,
) -> Response {
    let between = tokio::time::sleep(app.work);
    app.visit(&key, &held, &headers, between).await
}

impl App {
    async fn visit(
        &self,
        key: &str,
        held: &HeldLock,
        headers: &HeaderMap,
        between: impl Future<Output = ()>,
    ) -> Response {
        let id = headers
            .get(REQUEST_ID)
            .expect("each request has one")
            .to_str()
            .expect("a number")
            .to_owned();
        if held.is_unprotected() {
            return ([(UNPROTECTED, "1")], id).into_response();
        }
        let visit = self.ledger.enter(key);
        between.await;
        if let Err(not_held) = held.ensure_held() {
            return not_held.into_response();
        }
        visit.write(&id, held.fencing_token());
        id.into_response()
    }
}
