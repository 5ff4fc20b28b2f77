//! For how long responses are kept, and how many.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response};
use polylock_tower::idempotency::{MemoryResponses, Put, ResponseStore as _, StoredResponse};

use super::support::{DAY, Payments, Scene, key, post, put, response};
use crate::support::send;

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
async fn the_oldest_go_beyond_the_bytes() {
    let store = MemoryResponses::new().with_max_bytes(20_000);
    fill(&store, 10, DAY).await;
    assert_eq!(store.len(), 2);
    for (name, is_kept) in [("7", false), ("8", true), ("9", true)] {
        let found = store.get(&key(name)).await.expect("it works");
        assert_eq!(found.is_some(), is_kept, "{name}");
    }
    // Most of what a small response takes is its places in the tables.
    let store = MemoryResponses::new().with_max_bytes(20_000);
    for number in 0..100 {
        let key = key(&number.to_string());
        let put = put(&store, &key, &response(1, None), None, DAY).await;
        assert_eq!(put, Put::Stored);
    }
    assert!(
        (1..30).contains(&store.len()),
        "{} responses are stored",
        store.len()
    );
    let store = MemoryResponses::new().with_max_bytes(100);
    fill(&store, 1, DAY).await;
    assert!(store.is_empty());
    let store = MemoryResponses::new();
    fill(&store, 1, Duration::MAX).await;
    assert_eq!(store.len(), 1, "no retention is too long");
}

#[tokio::test(start_paused = true)]
async fn a_response_larger_than_the_store_evicts_no_other() {
    let store = MemoryResponses::new().with_max_bytes(20_000);
    fill(&store, 2, DAY).await;
    let (large, response) = (key("large"), response(2, Some(vec![b'x'; 20_000].into())));
    put(&store, &large, &response, None, DAY).await;
    for (name, is_kept) in [("0", true), ("1", true), ("large", false)] {
        let found = store.get(&key(name)).await.expect("it works");
        assert_eq!(found.is_some(), is_kept, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stored_response_keeps_no_larger_buffer_in_memory() {
    let buffer: Arc<[u8]> = vec![b'x'; 1 << 16].into();
    let whole = Bytes::from_owner(Arc::clone(&buffer));
    let note = HeaderValue::from_maybe_shared(whole.slice(..4)).expect("it is right");
    let response = Response::builder().header("x-note", note);
    let response = response.body(Some(whole.slice(4..8))).expect("it is right");
    drop(whole);
    let stored = StoredResponse::new(1, [1; 32], &response);
    drop(response);
    let (store, key) = (MemoryResponses::new(), key("a"));
    put(&store, &key, &stored, None, DAY).await;
    let found = store.get(&key).await.expect("it works");
    assert_eq!(found.as_ref(), Some(&stored));
    assert!(Arc::strong_count(&buffer) > 1);
    drop(stored);
    assert_eq!(Arc::strong_count(&buffer), 1, "the buffer is kept");
}

/// Each has a body of about 8,000 bytes.
async fn fill(store: &MemoryResponses, responses: usize, retention: Duration) {
    let stored = response(1, Some(vec![b'x'; 8000].into()));
    for number in 0..responses {
        let key = key(&number.to_string());
        let put = put(store, &key, &stored, None, retention).await;
        assert_eq!(put, Put::Stored);
    }
}
