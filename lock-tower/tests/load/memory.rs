//! Keys that come once.

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{Request, StatusCode};
use tower::ServiceExt as _;

use super::app::{by_path, connect, locker};
use super::support::{is_alone, resident};

/// `POLYLOCK_LOAD_KEYS` asks for another number.
const KEYS: usize = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distinct_keys_leave_no_memory_behind() {
    if !is_alone("memory::distinct_keys_leave_no_memory_behind") {
        return;
    }
    let keys = std::env::var("POLYLOCK_LOAD_KEYS");
    let keys = keys.map_or(KEYS, |text| text.parse().expect("a number"));
    let locker = locker(connect("memory:").await, |builder| builder);
    let router = Router::new().route("/{key}", post("done").layer(by_path(locker.clone())));
    let began = std::time::Instant::now();
    visit(&router, 0..keys / 2).await;
    let before = resident();
    visit(&router, keys / 2..keys).await;
    let more = resident().saturating_sub(before) / 1024;
    println!(
        "{keys} keys in {:.1?}, {more} KiB more after the second half",
        began.elapsed()
    );
    assert_eq!((locker.live_keys(), locker.waiters()), (0, 0));
    assert!(more < 4 * 1024, "{more} KiB");
}

async fn visit(router: &Router, keys: std::ops::Range<usize>) {
    for key in keys {
        let request = Request::post(format!("/key-{key}")).body(Body::empty());
        let response = router.clone().oneshot(request.expect("a request")).await;
        let status = response.expect("it is infallible").status();
        assert_eq!(status, StatusCode::OK);
    }
}
