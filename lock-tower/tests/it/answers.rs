//! Responses to requests that do not get their lock.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::Full;
use polylock_core::ErrorKind;
use polylock_tower::{
    Format, KeyError, KeyLockLayer, Locker, LockerBuilder, ProblemDetails, Reason, Rejection,
    RejectionResponder, RequestInfo,
};
use serde_json::json;
use tower::Layer as _;

use crate::support::{Broken, SECRET, Said, Scene, by_path, handler, post, send};

/// Its key has a part that must not appear in a response.
const PATH: &str = "/account-4711";

async fn ask(layer: &KeyLockLayer, content_type: Option<&str>) -> Said {
    let mut request = post(PATH);
    if let Some(content_type) = content_type {
        let content_type = content_type.parse().expect("a header");
        request.headers_mut().insert("content-type", content_type);
    }
    let said = send(&layer.layer(handler(async |_| "done")), request).await;
    assert!(!format!("{said:?}").contains(SECRET), "{said:?}");
    said
}

/// The response to a request with an unknown outcome.
async fn answer(responder: &impl RejectionResponder, rejection: &Rejection) -> Said {
    let response = responder.respond(&RequestInfo::default(), rejection);
    Said::read(response.map(Full::<Bytes>::from)).await
}

fn no_key(error: KeyError) -> KeyLockLayer {
    let no_key = move |_: &Parts| Err(error.clone());
    KeyLockLayer::new(Scene::new().locker(), no_key)
}

#[tokio::test]
async fn each_reason_says_what_happened_and_whether_to_come_back() {
    use Reason::*;
    for (reason, status, name) in [
        (BodyTooLarge, 413, "idempotency-body-too-large"),
        (BodyUnreadable, 400, "idempotency-body-unreadable"),
        (Busy, 409, "lock-busy"),
        (IdempotencyKeyInvalid, 400, "idempotency-key-invalid"),
        (IdempotencyKeyMissing, 400, "idempotency-key-missing"),
        (IdempotencyKeyReused, 422, "idempotency-key-reused"),
        (InvalidKey, 400, "lock-key"),
        (Lost, 503, "lock-lost"),
        (Misconfigured, 500, "lock-misconfigured"),
        (QueueFull, 429, "lock-queue-full"),
        (ResponseNotKept, 409, "idempotency-response-not-kept"),
        (StoreUnavailable, 503, "idempotency-store-unavailable"),
        (TimedOut, 409, "lock-timeout"),
        (Unavailable, 503, "lock-unavailable"),
    ] {
        let rejection = Rejection::new(reason).with_retry_after(Duration::from_millis(2100));
        let said = answer(&ProblemDetails::new(), &rejection).await;
        let problem = said.assert_refused(status, name);
        assert_eq!(problem["type"], format!("urn:polylock:{name}"));
        assert_eq!(problem["title"], reason.to_string());
        assert_eq!(said.header("cache-control"), Some("no-store"));
        let later = (reason != Lost).then_some("3");
        assert_eq!(said.header("retry-after"), later, "{name}");
    }
    let busy = answer(&ProblemDetails::new(), &Rejection::new(Busy)).await;
    assert_eq!(busy.header("retry-after"), None);
    let document = json!({
        "type": "urn:polylock:lock-busy",
        "title": "the lock is held",
        "status": 409,
        "detail": "another request with the same key holds it; if its server has failed, it is free when the lease ends",
        "reason": "lock-busy",
    });
    assert_eq!(busy.assert_refused(409, "lock-busy"), document);
}

#[tokio::test(start_paused = true)]
async fn each_situation_has_its_reason_and_no_answer_names_the_key() {
    let [soon, later, never] = [Some("1"), Some("3"), None];
    let assert_answer = async |layer: KeyLockLayer, status, reason, retry_after| {
        let said = ask(&layer, None).await;
        assert_eq!(said.header("retry-after"), retry_after, "{said:?}");
        said.assert_refused(status, reason)["detail"].clone()
    };
    let scene = Scene::new();
    let holder = scene.try_elsewhere(PATH).await;
    let try_only = by_path(scene.locker_with(LockerBuilder::try_only));
    assert_answer(try_only, 409, "lock-busy", soon).await;
    let no_wait = by_path(scene.locker_with(|locker| locker.wait(Duration::ZERO)));
    assert_answer(no_wait, 409, "lock-busy", soon).await;
    let wait = by_path(scene.locker_with(|locker| {
        let locker = locker.wait(Duration::from_millis(50));
        locker.retry_after(Duration::from_millis(2100))
    }));
    assert_answer(wait, 409, "lock-timeout", later).await;
    drop(holder);

    let locker = Scene::new().locker_with(|locker| locker.max_waiters_per_key(0));
    let _first = locker.lock(PATH).await.expect("it is free");
    let detail = assert_answer(by_path(locker), 429, "lock-queue-full", soon).await;
    assert_eq!(detail, "too many requests wait for the same lock");

    for (kind, status, reason, retry_after) in [
        (ErrorKind::Unavailable, 503, "lock-unavailable", soon),
        (ErrorKind::Denied, 500, "lock-misconfigured", never),
    ] {
        let locker = Locker::builder(Arc::new(Broken(kind)), "accounts").build();
        let layer = by_path(locker.expect("the options go together"));
        let locker = layer.locker().clone();
        assert_answer(layer, status, reason, retry_after).await;
        assert_eq!(locker.live_keys(), 0, "{kind:?}");
    }
    let misconfigured = no_key(KeyError::Misconfigured(format!("no {SECRET}")));
    assert_answer(misconfigured, 500, "lock-misconfigured", never).await;
    for error in [KeyError::Missing, KeyError::Invalid] {
        let layer = no_key(error("there is no tenant".to_owned()));
        let detail = assert_answer(layer, 400, "lock-key", never).await;
        assert_eq!(detail, "there is no tenant");
    }
    let mut response = Response::new(Bytes::from_static(b"who are you"));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    let said = ask(&no_key(KeyError::Response(Box::new(response))), None).await;
    assert_eq!((said.status, &said.body[..]), (401, "who are you"));
    assert_eq!(said.header("content-type"), None);
}

#[tokio::test]
async fn status_type_format_and_all_of_an_answer_can_be_set() {
    let busy = Rejection::new(Reason::Busy).with_retry_after(Duration::from_secs(1));
    let locked = ProblemDetails::new().with_busy_status(StatusCode::LOCKED);
    let locked = locked.with_type_base("https://errors.example/");
    let said = answer(&locked, &busy).await;
    let problem = said.assert_refused(423, "lock-busy");
    assert_eq!(problem["type"], "https://errors.example/lock-busy");
    for (reason, status) in [(Reason::TimedOut, 423), (Reason::QueueFull, 429)] {
        let said = answer(&locked, &Rejection::new(reason)).await;
        assert_eq!(said.status, status);
    }
    let busy = busy.with_detail("come back");
    let (text, body) = ("text/plain; charset=utf-8", "the lock is held: come back\n");
    let rows = [(Format::Text, Some(text), body), (Format::Empty, None, "")];
    for (format, content_type, body) in rows {
        let said = answer(&ProblemDetails::new().with_format(format), &busy).await;
        assert_eq!((said.status, &said.body[..]), (409, body));
        assert_eq!(said.header("content-type"), content_type);
        assert_eq!(said.header("cache-control"), Some("no-store"));
        assert_eq!(said.header("retry-after"), Some("1"));
    }

    let layer = no_key(KeyError::Missing(String::new()));
    let layer = layer.with_responder(|asked: &RequestInfo, rejection: &Rejection| {
        let text = format!("{} {}", asked.method(), rejection.reason().as_str());
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    });
    let said = ask(&layer, None).await;
    assert_eq!((said.status, &said.body[..]), (418, "POST lock-key"));
    assert_eq!(said.header("cache-control"), None);
}

#[tokio::test]
async fn calls_of_grpc_get_a_status_and_no_document() {
    let scene = Scene::new();
    let _holder = scene.try_elsewhere(PATH).await;
    let layer = by_path(scene.locker_with(LockerBuilder::try_only));
    for (asked, answered) in [
        ("", ""),
        ("+proto", ""),
        ("-web+proto", "-web+proto"),
        ("-web-text", "-web-text+proto"),
    ] {
        let said = ask(&layer, Some(&format!("application/grpc{asked}"))).await;
        assert_eq!((said.status, &said.body[..]), (200, ""));
        let answered = format!("application/grpc{answered}");
        assert_eq!(said.header("content-type"), Some(&*answered));
        assert_eq!(said.header("cache-control"), Some("no-store"));
        assert_eq!(said.header("grpc-status"), Some("10"));
        let message = said.header("grpc-message").expect("a message");
        assert_eq!(message.replace("%20", " "), "the lock is held");
        let details = said.header("grpc-status-details-bin");
        assert_eq!(details.is_some(), cfg!(feature = "tonic"));
    }
    let layer = no_key(KeyError::Invalid("100 % \u{e4}\r\n".to_owned()));
    let said = ask(&layer, Some("application/grpc")).await;
    assert_eq!(said.header("grpc-status"), Some("3"));
    let message = said.header("grpc-message").expect("a message");
    let expected = "the request does not name its lock: 100 %25 %C3%A4%0D%0A";
    assert_eq!(message.replace("%20", " "), expected, "it is escaped");
}
