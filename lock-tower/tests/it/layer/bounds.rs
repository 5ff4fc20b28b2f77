//! How many may wait.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use polylock_core::admin::LockAdmin;
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, LockGuard, Result,
};
use polylock_tower::{Locker, LockerBuilder, Reason, SafeMethods};
use tower::Layer as _;

use crate::support::{Scene, Stage, by_path, post, request, send, settle, spawn};

/// Sends `served` one after the other, all of which stay, then `refused`, and `beside`, which is not
/// concerned by the bound.
async fn assert_bound(
    set: impl FnOnce(LockerBuilder) -> LockerBuilder,
    served: &[&str],
    waiters: usize,
    refused: &str,
    beside: Option<&str>,
) {
    let locker = Scene::new().locker_with(set);
    let stage = Stage::new();
    let service = by_path(locker.clone()).layer(stage.handler());
    let mut sent = Vec::new();
    for path in served {
        sent.push(spawn(&service, post(path)));
        settle().await;
    }
    assert_eq!(locker.waiters(), waiters);
    let answer = send(&service, post(refused)).await;
    answer.assert_refused(429, "lock-queue-full");
    sent.extend(beside.map(|path| spawn(&service, post(path))));
    stage.let_go(sent.len() + 1);
    for request in sent {
        assert_eq!(request.said().await.status, 200);
    }
    assert_eq!((locker.waiters(), locker.live_keys()), (0, 0));
    assert_eq!(send(&service, post(refused)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn so_many_wait_for_a_key_and_the_next_is_refused() {
    let three = |locker: LockerBuilder| locker.max_waiters_per_key(3);
    assert_bound(three, &["/a"; 4], 3, "/a", Some("/b")).await;
}

#[tokio::test(start_paused = true)]
async fn so_many_wait_in_all() {
    let two = |locker: LockerBuilder| locker.max_waiters(2);
    assert_bound(two, &["/a", "/a", "/b", "/b"], 2, "/b", Some("/c")).await;
}

#[tokio::test(start_paused = true)]
async fn so_many_keys_live() {
    let two = |locker: LockerBuilder| locker.max_live_keys(2);
    assert_bound(two, &["/a", "/b", "/a"], 1, "/c", None).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_one_of_its_keys_leaves_the_others() {
    let locker = Scene::new().locker_with(|locker| locker.max_waiters_per_key(0));
    let held = locker.lock("b").await.unwrap();
    let refused = locker.lock_all(["a", "b"]).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::QueueFull);
    assert_eq!(locker.live_keys(), 1);
    held.release().await.unwrap();
    assert_eq!(locker.live_keys(), 0);
    let both = locker.lock_all(["a", "b"]).await.unwrap();
    both.release().await.unwrap();
}

/// Locks that others hold. Each answer takes a while.
#[derive(Debug)]
struct HeldElsewhere;

#[async_trait]
impl DistributedLock for HeldElsewhere {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("held")
    }

    async fn acquire(&self, _: &AcquireRequest) -> Result<LockGuard> {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Err(Error::new(ErrorKind::Contended, "it is held"))
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, _: Duration) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_not_sent_is_not_said_to_be_busy() {
    let locker = Locker::builder(Arc::new(HeldElsewhere), "test").try_only();
    let service = by_path(locker.build().unwrap()).layer(Stage::new().handler());
    let sent: Vec<_> = (0..100).map(|_| spawn(&service, post("/a"))).collect();
    for (n, request) in sent.into_iter().enumerate() {
        let said = request.said().await;
        match n {
            0..=64 => said.assert_refused(409, "lock-busy"),
            _ => said.assert_refused(429, "lock-queue-full"),
        };
    }
}

#[tokio::test(start_paused = true)]
async fn readers_that_wait_for_one_key_leave_room_for_other_keys() {
    let locker = Scene::new().locker_with(|locker| locker.max_waiters(200));
    let stage = Stage::new();
    let layer = by_path(locker.clone()).with_safe_methods(SafeMethods::Shared);
    let service = layer.unwrap().layer(stage.handler());
    let writer = locker.lock("/a").await.unwrap();
    let readers: Vec<_> = (0..300)
        .map(|_| spawn(&service, request(Method::GET, "/a")))
        .collect();
    settle().await;
    assert_eq!(locker.waiters(), 64);
    let others = [(); 2].map(|()| spawn(&service, post("/b")));
    stage.let_go(66);
    for other in others {
        assert_eq!(other.said().await.status, 200);
    }
    writer.release().await.unwrap();
    let mut served = 0;
    for reader in readers {
        let said = reader.said().await;
        match said.status {
            200 => served += 1,
            _ => drop(said.assert_refused(429, "lock-queue-full")),
        }
    }
    assert_eq!(served, 64);
}
