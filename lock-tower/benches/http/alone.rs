use std::hint::black_box;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use tower::ServiceExt as _;

use super::routes::{bare, connect, locked};
use super::{median, runtime};

/// One request after the other, straight into the application.
pub(crate) fn run() {
    let (bare, locked) = runtime().block_on(async {
        let apps = [bare(), locked(connect("memory:").await)];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..9 {
            for (app, times) in apps.iter().zip(&mut times) {
                times.push(time(app).await);
            }
        }
        let [bare, locked] = times;
        (median(bare), median(locked))
    });
    println!("one request, without HTTP");
    println!("  the route alone      {bare:>10.1?}");
    println!("  the layer on memory  {locked:>10.1?}");
}

async fn time(app: &Router) -> Duration {
    const REQUESTS: u32 = 20_000;
    let began = Instant::now();
    for number in 0..REQUESTS {
        let uri = format!("/work/{number}");
        let request = Request::post(uri).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await;
        black_box(response.unwrap());
    }
    began.elapsed() / REQUESTS
}
