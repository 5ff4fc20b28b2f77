//! What clients read whose request does not get its lock.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::post;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use polylock_core::admin::LockAdmin;
use polylock_core::{AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, LockGuard};
use polylock_tower::{
    Format, HeldLock, KeyError, KeyLockLayer, Keys, Locker, LockerBuilder, NotHeld, ProblemDetails,
    Rejection, RejectionResponder, RequestInfo,
};
use serde_json::json;

use crate::support::{Said, Scene, Stage, send, spawn};

/// Part of the key that no answer may have in it.
const SECRET: &str = "4711";

fn layer(locker: LockerBuilder, answer: impl RejectionResponder) -> KeyLockLayer {
    let locker = locker.build().expect("the options go together");
    let named = |Path(account): Path<String>| Keys::one(format!("{account}-{SECRET}"));
    KeyLockLayer::from_extractor(locker, named).with_responder(answer)
}

fn plain(locker: LockerBuilder) -> KeyLockLayer {
    layer(locker, ProblemDetails::new())
}

/// What a request is told while another client has the lock.
async fn refused_where_held(
    set: impl FnOnce(LockerBuilder) -> LockerBuilder,
    answer: impl RejectionResponder,
) -> Said {
    let scene = Scene::new();
    let locker = set(scene.builder());
    let _holder = scene.try_elsewhere(&format!("account-{SECRET}")).await;
    ask(&Stage::new().router(layer(locker, answer)), request()).await
}

async fn refused_by_full_queue(answer: impl RejectionResponder) -> Said {
    let locker = Scene::new().builder().max_waiters_per_key(0);
    let (stage, layer) = (Stage::new(), layer(locker, answer));
    let app = stage.router(layer);
    let first = spawn(&app, request());
    stage.happened(1).await;
    let said = ask(&app, request()).await;
    stage.let_go(1);
    assert_eq!(first.said().await.status, 200);
    said
}

async fn refused_by_backend(kind: ErrorKind) -> Said {
    let locker = Locker::builder(Arc::new(Broken(kind)), "accounts");
    ask(&Stage::new().router(plain(locker)), request()).await
}

fn bad_key(error: KeyError) -> Router {
    let locker = Scene::new().locker();
    let layer = KeyLockLayer::new(locker, move |_: &http::request::Parts| Err(error.clone()));
    Stage::new().router(layer)
}

async fn refused_by_extractor(error: KeyError) -> Said {
    ask(&bad_key(error), request()).await
}

/// What a handler answers that looks at its lock.
async fn released_by_its_handler() -> Said {
    async fn handler(held: HeldLock) -> Result<(), NotHeld> {
        held.release().await.expect("memory answers");
        held.ensure_held()
    }
    let layer = plain(Scene::new().builder());
    let app = Router::new().route("/{account}", post(handler).layer(layer));
    ask(&app, request()).await
}

async fn lost_while_it_was_handled() -> Said {
    let (scene, stage) = (Scene::new(), Stage::new());
    let locker = scene.builder().retry_after(Duration::from_secs(7));
    let first = spawn(&stage.router(plain(locker)), request());
    stage.happened(1).await;
    scene.break_lock(&format!("account-{SECRET}")).await;
    first.said().await
}

fn request() -> Request<Body> {
    let request = Request::post("/account");
    request.body(Body::empty()).expect("a request")
}

fn call(content_type: &str) -> Request<Body> {
    let mut call = request();
    let content_type = content_type.parse().expect("a header");
    call.headers_mut().insert("content-type", content_type);
    call
}

async fn ask(app: &Router, request: Request<Body>) -> Said {
    let said = send(app, request).await;
    assert!(!format!("{said:?}").contains(SECRET), "{said:?}");
    said
}

/// Status, reason, title and detail of a problem document.
type Problem<'a> = (u16, &'a str, &'a str, &'a str);

/// Expects all of the document, and nothing for caches to keep.
#[track_caller]
fn assert_problem(said: &Said, retry_after: Option<&str>, problem: Problem<'_>) {
    let (status, reason, title, detail) = problem;
    let expected = json!({
        "type": format!("urn:polylock:{reason}"),
        "title": title,
        "status": status,
        "detail": detail,
        "reason": reason,
    });
    assert_eq!(said.assert_refused(status, reason), expected);
    assert_eq!(said.header("cache-control"), Some("no-store"));
    assert_eq!(said.header("retry-after"), retry_after);
}

const BUSY: Problem<'_> = (
    409,
    "lock-busy",
    "the lock is held",
    "another request with the same key holds it; if its server has failed, it is free when the lease ends",
);
const TIMEOUT: Problem<'_> = (
    409,
    "lock-timeout",
    "the lock was held for as long as the request may wait",
    "requests with the same key held it; if their server has failed, it is free when the lease ends",
);
const QUEUE_FULL: Problem<'_> = (
    429,
    "lock-queue-full",
    "too many requests wait for locks",
    "too many requests wait for the same lock",
);
const UNAVAILABLE: Problem<'_> = (
    503,
    "lock-unavailable",
    "the lock service is unavailable",
    "the request can be repeated later",
);
const MISCONFIGURED: Problem<'_> = (
    500,
    "lock-misconfigured",
    "the lock is not set up correctly",
    "the request is not at fault, and repeating it does not help",
);
const NO_KEY: Problem<'_> = (
    400,
    "lock-key",
    "the request does not name its lock",
    "there is no tenant",
);
const LOST: Problem<'_> = (
    503,
    "lock-lost",
    "the lock was lost while the request was handled",
    "it is unknown what the request has done; look before you repeat it",
);

#[tokio::test(start_paused = true)]
async fn each_refusal_says_why_and_whether_to_come_back() {
    let no_wait = |locker: LockerBuilder| locker.wait(Duration::ZERO);
    let wait = |locker: LockerBuilder| {
        let locker = locker.wait(Duration::from_millis(50));
        locker.retry_after(Duration::from_millis(2100))
    };
    let problem = ProblemDetails::new;
    let [soon, later, never] = [Some("1"), Some("3"), None];
    let held = refused_where_held(LockerBuilder::try_only, problem()).await;
    assert_problem(&held, soon, BUSY);
    let held = refused_where_held(no_wait, problem()).await;
    assert_problem(&held, soon, BUSY);
    let held = refused_where_held(wait, problem()).await;
    assert_problem(&held, later, TIMEOUT);
    assert_problem(&refused_by_full_queue(problem()).await, soon, QUEUE_FULL);
    for (kind, retry_after, expected) in [
        (ErrorKind::Unavailable, soon, UNAVAILABLE),
        (ErrorKind::Denied, never, MISCONFIGURED),
    ] {
        assert_problem(&refused_by_backend(kind).await, retry_after, expected);
    }
    let no_tenant = || "there is no tenant".to_owned();
    for (error, expected) in [
        (
            KeyError::Misconfigured(format!("no {SECRET}")),
            MISCONFIGURED,
        ),
        (KeyError::Missing(no_tenant()), NO_KEY),
        (KeyError::Invalid(no_tenant()), NO_KEY),
    ] {
        assert_problem(&refused_by_extractor(error).await, never, expected);
    }
    assert_problem(&released_by_its_handler().await, never, MISCONFIGURED);
    assert_problem(&lost_while_it_was_handled().await, never, LOST);
    let mut response = Response::new(Bytes::from_static(b"who are you"));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    let said = refused_by_extractor(KeyError::Response(Box::new(response))).await;
    assert_eq!((said.status, &said.body[..]), (401, "who are you"));
    assert_eq!(said.header("content-type"), None);
}

#[tokio::test(start_paused = true)]
async fn status_type_format_and_all_of_an_answer_can_be_set() {
    let locked = ProblemDetails::new()
        .with_busy_status(StatusCode::LOCKED)
        .with_type_base("https://errors.example/");
    let said = refused_where_held(LockerBuilder::try_only, locked.clone()).await;
    let problem = said.assert_refused(423, "lock-busy");
    assert_eq!(problem["type"], "https://errors.example/lock-busy");
    let short_wait = |locker: LockerBuilder| locker.wait(Duration::from_millis(1));
    let said = refused_where_held(short_wait, locked.clone()).await;
    assert_eq!(said.status, 423);
    assert_eq!(refused_by_full_queue(locked).await.status, 429);

    let line = format!("{}: {}\n", BUSY.2, BUSY.3);
    for (format, content_type, body) in [
        (Format::Text, Some("text/plain; charset=utf-8"), &*line),
        (Format::Empty, None, ""),
    ] {
        let answer = ProblemDetails::new().with_format(format);
        let said = refused_where_held(LockerBuilder::try_only, answer).await;
        assert_eq!((said.status, &said.body[..]), (409, body));
        assert_eq!(said.header("content-type"), content_type);
        assert_eq!(said.header("cache-control"), Some("no-store"));
        assert_eq!(said.header("retry-after"), Some("1"));
    }

    let answer = |asked: &RequestInfo, rejection: &Rejection| {
        let text = format!("{} {}", asked.method(), rejection.reason().as_str());
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    let said = refused_where_held(LockerBuilder::try_only, answer).await;
    assert_eq!((said.status, &said.body[..]), (418, "POST lock-busy"));
    assert_eq!(said.header("cache-control"), None);
}

#[tokio::test]
async fn calls_of_grpc_get_a_status_and_no_document() {
    let scene = Scene::new();
    let _holder = scene.try_elsewhere(&format!("account-{SECRET}")).await;
    let app = Stage::new().router(plain(scene.builder().try_only()));
    for (asked, answered) in [
        ("", ""),
        ("+proto", ""),
        ("-web+proto", "-web+proto"),
        ("-web-text", "-web-text+proto"),
    ] {
        let said = ask(&app, call(&format!("application/grpc{asked}"))).await;
        assert_eq!((said.status, &said.body[..]), (200, ""));
        let answered = format!("application/grpc{answered}");
        assert_eq!(said.header("content-type"), Some(&*answered));
        assert_eq!(said.header("grpc-status"), Some("10"));
        let message = said.header("grpc-message").expect("a message");
        assert_eq!(message.replace("%20", " "), "the lock is held");
        let details = said.header("grpc-status-details-bin");
        assert_eq!(details.is_some(), cfg!(feature = "tonic"));
    }
    let app = bad_key(KeyError::Invalid("100 % \u{e4}\r\n".to_owned()));
    let said = ask(&app, call("application/grpc")).await;
    assert_eq!(said.header("grpc-status"), Some("3"));
    let message = said.header("grpc-message").expect("a message");
    let expected = "the request does not name its lock: 100 %25 %C3%A4%0D%0A";
    assert_eq!(message.replace("%20", " "), expected, "it is escaped");
}

/// Fails in the same way always, and says more than a client should read.
#[derive(Debug)]
struct Broken(ErrorKind);

#[async_trait]
impl DistributedLock for Broken {
    fn capabilities(&self) -> Capabilities {
        Capabilities::least("broken")
    }

    async fn acquire(&self, request: &AcquireRequest) -> polylock_core::Result<LockGuard> {
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
