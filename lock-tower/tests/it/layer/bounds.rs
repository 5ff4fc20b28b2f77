//! How many may wait.

use std::sync::Arc;

use http::StatusCode;
use lock_tower::{KeyLock, Locker, Reason};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower::{Layer as _, ServiceExt as _};

use super::support::{Handler, Scene, by_path, handler, post, settle};
use crate::support::InTime as _;

/// A service whose handlers end when the test lets them.
struct Gate {
    service: KeyLock<Handler>,
    ends: Arc<Semaphore>,
}

impl Gate {
    fn new(locker: &Locker) -> Self {
        let ends = Arc::new(Semaphore::new(0));
        let inner = {
            let ends = Arc::clone(&ends);
            handler(move |_| {
                let ends = Arc::clone(&ends);
                async move {
                    ends.acquire().await.expect("it is open").forget();
                    "done"
                }
            })
        };
        let service = by_path(locker.clone()).layer(inner);
        Self { service, ends }
    }

    fn send(&self, path: &str) -> JoinHandle<StatusCode> {
        let answer = self.service.clone().oneshot(post(path));
        tokio::spawn(async move { answer.await.expect("the handler does not fail").status() })
    }
}

#[tokio::test(start_paused = true)]
async fn so_many_wait_for_a_key_and_the_next_is_refused() {
    let scene = Scene::new();
    let locker = scene.builder().max_waiters_per_key(3).build().unwrap();
    let gate = Gate::new(&locker);
    let served: Vec<_> = (0..4).map(|_| gate.send("/a")).collect();
    settle().await;
    assert_eq!(locker.waiters(), 3);
    assert_eq!(
        gate.send("/a").await.unwrap(),
        StatusCode::TOO_MANY_REQUESTS
    );
    // Another key is not concerned.
    let other = gate.send("/b");
    gate.ends.add_permits(5);
    for request in served.into_iter().chain([other]) {
        assert_eq!(request.answered().await.unwrap(), StatusCode::OK);
    }
    assert_eq!((locker.waiters(), locker.live_keys()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn so_many_wait_in_all() {
    let scene = Scene::new();
    let locker = scene.builder().max_waiters(2).build().unwrap();
    let gate = Gate::new(&locker);
    let mut served = Vec::new();
    for path in ["/a", "/a", "/b", "/b"] {
        served.push(gate.send(path));
        settle().await;
    }
    assert_eq!(locker.waiters(), 2);
    assert_eq!(
        gate.send("/b").await.unwrap(),
        StatusCode::TOO_MANY_REQUESTS
    );
    // Who does not wait is served.
    served.push(gate.send("/c"));
    gate.ends.add_permits(5);
    for request in served {
        assert_eq!(request.answered().await.unwrap(), StatusCode::OK);
    }
    assert_eq!((locker.waiters(), locker.live_keys()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn so_many_keys_live() {
    let scene = Scene::new();
    let locker = scene.builder().max_live_keys(2).build().unwrap();
    let gate = Gate::new(&locker);
    let served = ["/a", "/b", "/a"].map(|path| gate.send(path));
    settle().await;
    assert_eq!(locker.live_keys(), 2);
    assert_eq!(
        gate.send("/c").await.unwrap(),
        StatusCode::TOO_MANY_REQUESTS
    );
    gate.ends.add_permits(4);
    for request in served {
        assert_eq!(request.answered().await.unwrap(), StatusCode::OK);
    }
    assert_eq!(gate.send("/c").await.unwrap(), StatusCode::OK);
    assert_eq!(locker.live_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_one_of_its_keys_leaves_the_others() {
    let scene = Scene::new();
    let locker = scene.builder().max_waiters_per_key(0).build().unwrap();
    let held = locker.lock("b").await.unwrap();
    let refused = locker.lock_all(["a", "b"]).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::QueueFull);
    assert_eq!(locker.live_keys(), 1);
    held.release().await.unwrap();
    assert_eq!(locker.live_keys(), 0);
    locker
        .lock_all(["a", "b"])
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
