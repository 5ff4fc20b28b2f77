//! A route that is busy, and clients that ask for it.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::post;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use lock_core::engine::Engine;
use lock_core::memory::Memory;
use lock_core::{DistributedLock, ErrorKind, LockKey};
use lock_tower::{Answer, KeyError, KeyLockLayer, Keys, Locker, LockerBuilder, Problem};
use serde_json::Value;
use tokio::sync::Notify;
use tower::ServiceExt as _;

use super::broken::Broken;
use crate::support::InTime as _;

/// Part of the key that no answer may have in it.
pub(crate) const SECRET: &str = "4711";

/// A route whose handler stays until it is told to go on.
pub(crate) struct Scene {
    pub(crate) app: Router,
    pub(crate) entered: Arc<Notify>,
    pub(crate) go_on: Arc<Notify>,
}

impl Scene {
    pub(crate) fn new(locker: LockerBuilder, answer: impl Answer) -> Self {
        let (entered, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handler = {
            let (entered, go_on) = (Arc::clone(&entered), Arc::clone(&go_on));
            move || async move {
                entered.notify_one();
                go_on.notified().await;
            }
        };
        let route = post(handler).layer(Self::layer(locker, answer));
        let app = Router::new().route("/{account}", route);
        Self {
            app,
            entered,
            go_on,
        }
    }

    pub(crate) fn layer(locker: LockerBuilder, answer: impl Answer) -> KeyLockLayer {
        let locker = locker.build().expect("the options go together");
        let named = |Path(account): Path<String>| Keys::one(format!("{account}-{SECRET}"));
        KeyLockLayer::from_extractor(locker, named).with_answer(answer)
    }

    pub(crate) fn spawn(&self, account: &str) -> tokio::task::JoinHandle<Said> {
        tokio::spawn(ask(self.app.clone(), request(account)))
    }
}

pub(crate) fn of(locks: &Arc<Memory>) -> LockerBuilder {
    let locks: Arc<dyn DistributedLock> = Arc::<Memory>::clone(locks);
    Locker::builder(locks, "accounts")
}

pub(crate) fn key() -> LockKey {
    LockKey::new(format!("accounts:account-{SECRET}")).expect("a key")
}

/// What the second of two requests is told, while the first one has the lock.
pub(crate) async fn refused_where_held(
    set: impl FnOnce(LockerBuilder) -> LockerBuilder,
    answer: impl Answer,
) -> Said {
    let engine = Engine::on_current_runtime("memory");
    let locks = Arc::new(Memory::with_engine(engine));
    let scene = Scene::new(set(of(&locks)), answer);
    let first = scene.spawn("account");
    scene
        .entered
        .notified()
        .in_time("the start of the handler")
        .await;
    let said = ask(scene.app.clone(), request("account")).await;
    scene.go_on.notify_one();
    assert_eq!(first.await.expect("it ends").status, StatusCode::OK);
    said
}

pub(crate) async fn refused_by_backend(kind: ErrorKind) -> Said {
    let locker = Locker::builder(Arc::new(Broken(kind)), "accounts");
    ask(Scene::new(locker, Problem::new()).app, request("account")).await
}

pub(crate) async fn refused_by_extractor(error: KeyError) -> Said {
    ask(bad_key(error), request("account")).await
}

pub(crate) fn bad_key(error: KeyError) -> Router {
    let locker = of(&Arc::new(Memory::new())).build().expect("it is usual");
    let layer = KeyLockLayer::new(locker, move |_: &http::request::Parts| Err(error.clone()));
    Router::new().route("/{account}", post(|| async {}).layer(layer))
}

pub(crate) fn request(account: &str) -> Request<Body> {
    let request = Request::post(format!("/{account}"));
    request.body(Body::empty()).expect("a request")
}

/// An answer as the client sees it.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    pub(crate) body: String,
}

pub(crate) async fn ask(app: Router, request: Request<Body>) -> Said {
    let response = app
        .oneshot(request)
        .answered()
        .await
        .expect("a router answers");
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("the body ends").to_bytes();
    let said = Said {
        status: head.status,
        headers: head.headers,
        body: String::from_utf8(body.into()).expect("text"),
    };
    assert!(!format!("{said:?}").contains(SECRET), "{said:?}");
    said
}

impl Said {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("a header of text"))
    }

    #[track_caller]
    pub(crate) fn is_problem(&self, expected: &Value, retry_after: Option<&str>) {
        assert_eq!(expected["status"], self.status.as_u16(), "{self:?}");
        let document: Value = serde_json::from_str(&self.body).expect("JSON");
        assert_eq!(&document, expected);
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert_eq!(self.header("retry-after"), retry_after);
    }
}
