//! What clients read whose request does not get its lock.

#![cfg(feature = "axum")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use lock_core::admin::LockAdmin;
use lock_core::engine::Engine;
use lock_core::memory::Memory;
use lock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, LockGuard, LockKey,
};
use lock_tower::{
    Answer, Asked, Format, HeldLock, KeyError, KeyLockLayer, Keys, Locker, LockerBuilder, Problem,
    Reason, Rejection,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::ServiceExt as _;

/// Part of the key that no answer may have in it.
const SECRET: &str = "4711";

#[tokio::test]
async fn busy_is_a_conflict() {
    let said = refused_where_held(|locker| locker.try_only(), Problem::new()).await;
    let expected = json!({
        "type": "urn:polylock:lock-busy",
        "title": "the lock is held",
        "status": 409,
        "detail": "another request with the same key is being handled",
        "reason": "lock-busy",
    });
    said.is_problem(&expected, Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_in_vain_is_a_conflict() {
    let wait = |locker: LockerBuilder| {
        let locker = locker.wait(Duration::from_millis(50));
        locker.retry_after(Duration::from_millis(2100))
    };
    let said = refused_where_held(wait, Problem::new()).await;
    let expected = json!({
        "type": "urn:polylock:lock-timeout",
        "title": "the lock was held for as long as the request may wait",
        "status": 409,
        "detail": "other requests with the same key were handled meanwhile",
        "reason": "lock-timeout",
    });
    said.is_problem(&expected, Some("3"));
}

#[tokio::test]
async fn a_full_queue_is_too_many_requests() {
    let said = refused_where_held(|locker| locker.max_waiters_per_key(0), Problem::new()).await;
    let expected = json!({
        "type": "urn:polylock:lock-queue-full",
        "title": "too many requests wait for locks",
        "status": 429,
        "detail": "too many requests wait for the same lock",
        "reason": "lock-queue-full",
    });
    said.is_problem(&expected, Some("1"));
}

#[tokio::test]
async fn a_lock_service_that_is_away_is_unavailable() {
    let said = refused_by_backend(ErrorKind::Unavailable).await;
    let expected = json!({
        "type": "urn:polylock:lock-unavailable",
        "title": "the lock service is unavailable",
        "status": 503,
        "detail": "the request can be repeated later",
        "reason": "lock-unavailable",
    });
    said.is_problem(&expected, Some("1"));
}

#[tokio::test]
async fn a_lock_service_that_refuses_is_a_fault_of_the_service() {
    let said = refused_by_backend(ErrorKind::Denied).await;
    said.is_problem(&misconfigured(), None);
}

#[tokio::test]
async fn an_extractor_that_cannot_work_is_a_fault_of_the_service() {
    let said = refused_by_extractor(KeyError::Misconfigured(format!("no {SECRET}"))).await;
    said.is_problem(&misconfigured(), None);
}

fn misconfigured() -> Value {
    json!({
        "type": "urn:polylock:lock-misconfigured",
        "title": "the lock is not set up correctly",
        "status": 500,
        "detail": "the request is not at fault, and repeating it does not help",
        "reason": "lock-misconfigured",
    })
}

#[tokio::test]
async fn what_is_no_key_is_a_bad_request() {
    for error in [KeyError::Missing, KeyError::Invalid] {
        let said = refused_by_extractor(error("there is no tenant".to_owned())).await;
        let expected = json!({
            "type": "urn:polylock:lock-key",
            "title": "the request does not name its lock",
            "status": 400,
            "detail": "there is no tenant",
            "reason": "lock-key",
        });
        said.is_problem(&expected, None);
    }
}

#[tokio::test]
async fn an_answer_of_the_extractor_is_the_answer() {
    let mut response = Response::new(Bytes::from_static(b"who are you"));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    let said = refused_by_extractor(KeyError::Response(Box::new(response))).await;
    assert_eq!(said.status, StatusCode::UNAUTHORIZED);
    assert_eq!(said.body, "who are you");
    assert_eq!(said.header("content-type"), None);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_is_unavailable_without_a_time_to_come_back() {
    let engine = Engine::on_current_runtime("memory");
    let locks = Arc::new(Memory::with_engine(engine));
    let locker = of(&locks).retry_after(Duration::from_secs(7));
    let scene = Scene::new(locker, Problem::new());
    let first = scene.spawn("account");
    scene.entered.notified().await;
    let (key, why) = (key(), "for the test");
    locks.break_lock(&key, why).await.unwrap().expect("held");
    let expected = json!({
        "type": "urn:polylock:lock-lost",
        "title": "the lock was lost while the request was handled",
        "status": 503,
        "detail": "it is unknown what the request has done; look before you repeat it",
        "reason": "lock-lost",
    });
    first.await.unwrap().is_problem(&expected, None);
}

#[tokio::test]
async fn a_handler_that_looks_at_its_lock_answers_with_the_same_problem() {
    async fn handler(held: HeldLock) -> Result<(), lock_tower::NotHeld> {
        held.release().await.expect("memory answers");
        held.ensure_held()
    }
    let layer = Scene::layer(of(&Arc::new(Memory::new())), Problem::new());
    let app = Router::new().route("/{account}", post(handler).layer(layer));
    let said = ask(app, request("account")).await;
    said.is_problem(&misconfigured(), None);
}

#[tokio::test]
async fn the_status_of_a_held_lock_and_the_base_of_the_types_can_be_set() {
    let locked = Problem::new()
        .with_busy_status(StatusCode::LOCKED)
        .with_type_base("https://errors.example/");
    let expected = json!({
        "type": "https://errors.example/lock-busy",
        "title": "the lock is held",
        "status": 423,
        "detail": "another request with the same key is being handled",
        "reason": "lock-busy",
    });
    let said = refused_where_held(|locker| locker.try_only(), locked.clone()).await;
    said.is_problem(&expected, Some("1"));

    let no_wait = |locker: LockerBuilder| locker.wait(Duration::from_millis(1));
    let said = refused_where_held(no_wait, locked.clone()).await;
    assert_eq!(said.status, StatusCode::LOCKED);

    let said = refused_where_held(|locker| locker.max_waiters_per_key(0), locked).await;
    assert_eq!(said.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn the_body_can_be_a_line_of_text_or_nothing() {
    let text = Problem::new().with_format(Format::Text);
    let said = refused_where_held(|locker| locker.try_only(), text).await;
    assert_eq!(said.status, StatusCode::CONFLICT);
    assert_eq!(
        said.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(said.header("retry-after"), Some("1"));
    assert_eq!(
        said.body,
        "the lock is held: another request with the same key is being handled\n"
    );

    let empty = Problem::new().with_format(Format::Empty);
    let said = refused_where_held(|locker| locker.try_only(), empty).await;
    assert_eq!(said.status, StatusCode::CONFLICT);
    assert_eq!(said.header("content-type"), None);
    assert_eq!(said.header("cache-control"), Some("no-store"));
    assert_eq!(said.header("retry-after"), Some("1"));
    assert_eq!(said.body, "");
}

#[tokio::test]
async fn a_closure_is_an_answer() {
    let answer = |asked: &Asked, rejection: &Rejection| {
        let text = format!("{} {}", asked.method(), rejection.reason().as_str());
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    let said = refused_where_held(|locker| locker.try_only(), answer).await;
    assert_eq!(said.status, StatusCode::IM_A_TEAPOT);
    assert_eq!(said.body, "POST lock-busy");
    assert_eq!(said.header("cache-control"), None);
}

#[tokio::test]
async fn calls_of_grpc_get_a_status_and_no_document() {
    let kinds = [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        (
            "application/grpc-web-text",
            "application/grpc-web-text+proto",
        ),
    ];
    let locks = Arc::new(Memory::new());
    let scene = Scene::new(of(&locks).try_only(), Problem::new());
    let first = scene.spawn("account");
    scene.entered.notified().await;
    for (asked, answered) in kinds {
        let mut call = request("account");
        let asked = asked.parse().expect("a header");
        call.headers_mut().insert("content-type", asked);
        let said = ask(scene.app.clone(), call).await;
        assert_eq!(said.status, StatusCode::OK);
        assert_eq!(said.header("content-type"), Some(answered));
        assert_eq!(said.header("grpc-status"), Some("10"));
        let message = said.header("grpc-message").expect("a message");
        assert_eq!(message.replace("%20", " "), "the lock is held");
        let details = said.header("grpc-status-details-bin");
        assert_eq!(details.is_some(), cfg!(feature = "tonic"));
        assert_eq!(said.body, "");
    }
    scene.go_on.notify_one();
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_message_of_grpc_is_escaped() {
    let app = bad_key(KeyError::Invalid("100 % \u{e4}\r\n".to_owned()));
    let mut call = request("account");
    let grpc = "application/grpc".parse().expect("a header");
    call.headers_mut().insert("content-type", grpc);
    let said = ask(app, call).await;
    assert_eq!(said.header("grpc-status"), Some("3"));
    let message = said.header("grpc-message").expect("a message");
    assert_eq!(
        message.replace("%20", " "),
        "the request does not name its lock: 100 %25 %C3%A4%0D%0A"
    );
}

#[tokio::test]
async fn every_reason_has_a_name_of_its_own() {
    let reasons = [
        Reason::Busy,
        Reason::InvalidKey,
        Reason::Lost,
        Reason::Misconfigured,
        Reason::QueueFull,
        Reason::TimedOut,
        Reason::Unavailable,
    ];
    let mut names: Vec<_> = reasons.map(Reason::as_str).into();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), reasons.len());
}

/// A route whose handler stays until it is told to go on.
struct Scene {
    app: Router,
    entered: Arc<Notify>,
    go_on: Arc<Notify>,
}

impl Scene {
    fn new(locker: LockerBuilder, answer: impl Answer) -> Self {
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

    fn layer(locker: LockerBuilder, answer: impl Answer) -> KeyLockLayer {
        let locker = locker.build().expect("the options go together");
        let named = |Path(account): Path<String>| Keys::one(format!("{account}-{SECRET}"));
        KeyLockLayer::from_extractor(locker, named).with_answer(answer)
    }

    fn spawn(&self, account: &str) -> tokio::task::JoinHandle<Said> {
        tokio::spawn(ask(self.app.clone(), request(account)))
    }
}

fn of(locks: &Arc<Memory>) -> LockerBuilder {
    let locks: Arc<dyn DistributedLock> = Arc::<Memory>::clone(locks);
    Locker::builder(locks, "accounts")
}

fn key() -> LockKey {
    LockKey::new(format!("accounts:account-{SECRET}")).expect("a key")
}

/// What the second of two requests is told, while the first one has the lock.
async fn refused_where_held(
    set: impl FnOnce(LockerBuilder) -> LockerBuilder,
    answer: impl Answer,
) -> Said {
    let engine = Engine::on_current_runtime("memory");
    let locks = Arc::new(Memory::with_engine(engine));
    let scene = Scene::new(set(of(&locks)), answer);
    let first = scene.spawn("account");
    scene.entered.notified().await;
    let said = ask(scene.app.clone(), request("account")).await;
    scene.go_on.notify_one();
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    said
}

async fn refused_by_backend(kind: ErrorKind) -> Said {
    let locker = Locker::builder(Arc::new(Broken(kind)), "accounts");
    ask(Scene::new(locker, Problem::new()).app, request("account")).await
}

async fn refused_by_extractor(error: KeyError) -> Said {
    ask(bad_key(error), request("account")).await
}

fn bad_key(error: KeyError) -> Router {
    let locker = of(&Arc::new(Memory::new())).build().expect("it is usual");
    let layer = KeyLockLayer::new(locker, move |_: &http::request::Parts| Err(error.clone()));
    Router::new().route("/{account}", post(|| async {}).layer(layer))
}

fn request(account: &str) -> Request<Body> {
    let request = Request::post(format!("/{account}"));
    request.body(Body::empty()).expect("a request")
}

/// An answer as the client sees it.
#[derive(Debug)]
struct Said {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

async fn ask(app: Router, request: Request<Body>) -> Said {
    let response = app.oneshot(request).await.expect("a router answers");
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
    fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("a header of text"))
    }

    #[track_caller]
    fn is_problem(&self, expected: &Value, retry_after: Option<&str>) {
        let document: Value = serde_json::from_str(&self.body).expect("JSON");
        assert_eq!(&document, expected);
        assert_eq!(u64::from(self.status.as_u16()), expected["status"]);
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert_eq!(self.header("retry-after"), retry_after);
    }
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

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> lock_core::Result<Vec<LockGuard>> {
        Ok(vec![self.acquire(&requests[0]).await?])
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, _: Duration) -> bool {
        true
    }
}
