//! A route that is busy, and clients that ask for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use http::Request;
use lock_core::admin::LockAdmin;
use lock_core::{AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, LockGuard};
use lock_tower::{Answer, KeyError, KeyLockLayer, Keys, Locker, LockerBuilder, Problem};

use crate::support::{Said, Scene, Stage, send};

/// Part of the key that no answer may have in it.
pub(crate) const SECRET: &str = "4711";

pub(crate) fn layer(locker: LockerBuilder, answer: impl Answer) -> KeyLockLayer {
    let locker = locker.build().expect("the options go together");
    let named = |Path(account): Path<String>| Keys::one(format!("{account}-{SECRET}"));
    KeyLockLayer::from_extractor(locker, named).with_answer(answer)
}

/// What the second of two requests is told, while the first one has the lock.
pub(crate) async fn refused_where_held(
    set: impl FnOnce(LockerBuilder) -> LockerBuilder,
    answer: impl Answer,
) -> Said {
    let scene = Scene::new();
    let locker = set(scene.builder());
    let _holder = scene.try_elsewhere(&format!("account-{SECRET}")).await;
    ask(&Stage::new().router(layer(locker, answer)), request()).await
}

pub(crate) async fn refused_by_backend(kind: ErrorKind) -> Said {
    let locker = Locker::builder(Arc::new(Broken(kind)), "accounts");
    let app = Stage::new().router(layer(locker, Problem::new()));
    ask(&app, request()).await
}

pub(crate) async fn refused_by_extractor(error: KeyError) -> Said {
    ask(&bad_key(error), request()).await
}

pub(crate) fn bad_key(error: KeyError) -> Router {
    let locker = Scene::new().locker();
    let layer = KeyLockLayer::new(locker, move |_: &http::request::Parts| Err(error.clone()));
    Stage::new().router(layer)
}

pub(crate) fn request() -> Request<Body> {
    let request = Request::post("/account");
    request.body(Body::empty()).expect("a request")
}

pub(crate) fn call(content_type: &str) -> Request<Body> {
    let mut call = request();
    let content_type = content_type.parse().expect("a header");
    call.headers_mut().insert("content-type", content_type);
    call
}

pub(crate) async fn ask(app: &Router, request: Request<Body>) -> Said {
    let said = send(app, request).await;
    assert!(!format!("{said:?}").contains(SECRET), "{said:?}");
    said
}

/// Fails in the same way always, and says more than a client should read.
#[derive(Debug)]
struct Broken(ErrorKind);

#[async_trait]
impl DistributedLock for Broken {
    fn capabilities(&self) -> Capabilities {
        Capabilities::least("broken")
    }

    async fn acquire(&self, request: &AcquireRequest) -> lock_core::Result<LockGuard> {
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
