//! For how long responses are kept, and how many.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use lock_core::{FencingToken, LockKey};
use lock_tower::idempotency::{
    Fingerprint, MemoryResponses, Put, ResponseStore as _, StoredResponse,
};

use super::support::{Payments, Scene, post};
use crate::support::send;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_response_is_repeated_for_a_day() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    send(&service, post("a")).await;
    tokio::time::advance(DAY - SECOND).await;
    assert!(send(&service, post("a")).await.is_replayed());
    tokio::time::advance(SECOND).await;
    assert_eq!(send(&service, post("a")).await.body, "charge 2");
}

#[tokio::test(start_paused = true)]
async fn the_time_can_be_set_and_what_is_over_is_dropped() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer().with_retention(SECOND));
    for key in ["a", "b", "c"] {
        send(&service, post(key)).await;
    }
    assert_eq!(scene.store.kept.len(), 3);
    tokio::time::advance(SECOND).await;
    assert!(scene.store.kept.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_oldest_go_beyond_the_number() {
    let store = MemoryResponses::new().with_max_responses(2);
    fill(&store, 10).await;
    assert_eq!(kept(&store).await, ["8", "9"]);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_go_beyond_the_bytes() {
    let store = MemoryResponses::new().with_max_bytes(20_000);
    fill(&store, 10).await;
    assert_eq!(kept(&store).await, ["8", "9"]);
    let store = MemoryResponses::new().with_max_bytes(100);
    fill(&store, 1).await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_retention_is_too_long() {
    let store = MemoryResponses::new();
    let put = store.put(&key(0), &stored(), None, Duration::MAX).await;
    assert_eq!(put.unwrap(), Put::Stored);
    assert_eq!(kept(&store).await, ["0"]);
}

/// Each has a body of about 8,000 bytes.
async fn fill(store: &MemoryResponses, responses: usize) {
    for number in 0..responses {
        let token = Some(FencingToken::new(1));
        let put = store.put(&key(number), &stored(), token, DAY).await;
        assert_eq!(put.expect("it is right"), Put::Stored);
    }
}

async fn kept(store: &MemoryResponses) -> Vec<String> {
    let mut kept = Vec::new();
    for number in 0..10 {
        let found = store.get(&key(number)).await.expect("it is right");
        kept.extend(found.map(|_| number.to_string()));
    }
    kept
}

fn key(number: usize) -> LockKey {
    LockKey::new(number.to_string()).expect("it is right")
}

fn stored() -> StoredResponse {
    let body = Bytes::from(vec![b'x'; 8000]);
    StoredResponse::new(Fingerprint::from_bytes([0; 32]), &Response::new(Some(body)))
}
