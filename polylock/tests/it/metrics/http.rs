//! Requests that the layer refuses.
#![cfg(feature = "tower")]

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use polylock::memory::Memory;
use polylock::prelude::*;
use polylock::tower::keys::Header;
use polylock::tower::{KeyLockLayer, Locker};
use tower_service::Service as _;

use super::observer;

#[tokio::test]
async fn refused_requests_are_counted_by_status_and_reason() {
    let (observer, page) = observer();
    let locks: Arc<dyn DistributedLock> = Arc::new(Memory::new());
    let accounts = Locker::builder(Arc::clone(&locks), "accounts")
        .try_only()
        .rejection_observer(Arc::new(observer))
        .build()
        .unwrap();
    let refused = |status: &str, reason: &str| {
        let labels = format!(r#"class="accounts",status="{status}",reason="{reason}""#);
        page.value(&format!("polylock_http_rejections_total{{{labels}}}"))
    };
    assert_eq!(refused("409", "lock-timeout"), Some(0.0));
    assert_eq!(refused("503", "lock-lost"), Some(0.0));
    let layer = KeyLockLayer::new(accounts, Header::new("x-account").unwrap());
    let mut app: Router = Router::new().route("/", post(|| async {})).layer(layer);
    let held = locks.lock("accounts:42").await.unwrap();

    let post = || Request::post("/");
    let of_account = || post().header("x-account", "42").body(Body::empty());
    let answer = app.call(of_account().unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    let nameless = post().body(Body::empty()).unwrap();
    let answer = app.call(nameless).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    held.release().await.unwrap();
    let answer = app.call(of_account().unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);

    assert_eq!(refused("409", "lock-busy"), Some(1.0));
    assert_eq!(refused("400", "lock-key"), Some(1.0));
    assert_eq!(page.sum("polylock_http_rejections_total", ""), 2.0);
}
