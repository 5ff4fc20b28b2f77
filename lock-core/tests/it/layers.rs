//! `Prefix`, `Observe` and locks on several keys.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::layers::{Event, EventKind, LocalQueue, Observe, Observer, Prefix};
use lock_core::memory::{Fault, Memory, Request};
use lock_core::prelude::*;

use super::support::memory;

fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("is a key")
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_seen_by_the_store_alone() {
    let store = memory();
    let shop = Prefix::new(Arc::new(store.client()), "shop").unwrap();
    let guard = shop.lock("orders/42").await.unwrap();
    assert_eq!(guard.key().as_str(), "orders/42");
    let admin = store.admin().unwrap();
    assert_eq!(
        admin.list("").await.unwrap()[0].key.as_str(),
        "shop:orders/42"
    );

    let other = Prefix::new(Arc::new(store.client()), "bank").unwrap();
    assert!(other.try_lock("orders/42").await.unwrap().is_some());
    let error = shop
        .lock_within("orders/42", Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(error.key().map(LockKey::as_str), Some("orders/42"));

    let admin = shop.admin().unwrap();
    assert_eq!(
        admin.list("orders/").await.unwrap()[0].key.as_str(),
        "orders/42"
    );
    assert_eq!(
        admin
            .inspect(&key("orders/42"))
            .await
            .unwrap()
            .unwrap()
            .holders
            .len(),
        1
    );
    let broken = admin
        .break_lock(&key("orders/42"), "test")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(broken.key.as_str(), "orders/42");
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn the_longest_key_fits_behind_the_longest_namespace() {
    let shop = Prefix::new(Arc::new(memory()), &"n".repeat(64)).unwrap();
    assert!(shop.lock("k".repeat(256)).await.unwrap().is_held());
    for namespace in ["", "a:b", "a\nb", &"n".repeat(65)] {
        let error = Prefix::new(Arc::new(memory()), namespace).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{namespace:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_the_life_of_a_lock() {
    let store = memory();
    let ear = Arc::new(Ear::default());
    let locks = observed(&store, &ear);
    let first = locks.lock("k").await.unwrap();
    let (second, _) = tokio::join!(locks.lock("k"), first.release());
    tokio::time::sleep(Duration::from_secs(11)).await;
    store.faults().plan(Request::Renew, Fault::LostRequest);
    tokio::time::sleep(Duration::from_secs(11)).await;
    store.expire(&key("k"));
    second.unwrap().lost().into_future().await;
    let expected = [
        "requested",
        "held",
        "acquired",
        "requested",
        "given_up",
        "held",
        "handed_over",
        "acquired",
        "renewed",
        "failing",
        "renewed",
        "lost",
    ];
    let all = ear.take();
    let mut heard = all.iter();
    for event in expected {
        assert!(
            heard.any(|heard| *heard == event),
            "{event} is missing in {all:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_who_gave_up() {
    let store = memory();
    let ear = Arc::new(Ear::default());
    let locks = observed(&store, &ear);
    let held = store.lock("k").await.unwrap();
    drop(tokio::time::timeout(Duration::from_secs(1), locks.lock("k")).await);
    assert!(locks.try_lock("k").await.unwrap().is_none());
    assert!(held.is_held());
    assert_eq!(
        ear.take(),
        ["requested", "cancelled", "requested", "failed"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_breaks_no_lock() {
    let locks = Observe::new(Arc::new(memory())).with_observer(Arc::new(Panics));
    let guard = locks.lock("k").await.unwrap();
    drop(guard);
    assert_eq!(
        locks.lock("k").await.unwrap().release().await.unwrap(),
        Released::Clean
    );
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_taken_in_one_order_within_one_budget() {
    let store = memory();
    let held = store.lock("b").await.unwrap();
    let began = tokio::time::Instant::now();
    let request = store.request_all(["c", "b", "a", "b"]);
    let wait = Wait::AtMost(Duration::from_secs(5));
    let error = request
        .with(|request| request.with_wait(wait))
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), began.elapsed().as_secs()),
        (ErrorKind::Contended, 5)
    );
    assert!(
        store.try_lock("a").await.unwrap().is_some(),
        "all or nothing"
    );
    assert!(
        store
            .request_all(["a", "b"])
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    drop(held);
    let all = store.lock_all(["c", "b", "a", "b"]).await.unwrap();
    let keys: Vec<_> = all
        .guards()
        .iter()
        .map(|guard| guard.key().as_str())
        .collect();
    assert_eq!(keys, ["a", "b", "c"]);
    assert_eq!(all.run(async { 7 }).await.unwrap(), 7);
    store.expire(&key("b"));
    all.lost().await;
    assert_eq!(
        all.run(async { 7 }).await.unwrap_err().key(),
        Some(&key("b"))
    );
    assert_eq!(all.release().await.unwrap(), Released::AlreadyLost);
    assert_eq!(store.live_keys(), 0);
}

fn observed(store: &Memory, ear: &Arc<Ear>) -> Observe {
    let queue = LocalQueue::new(Arc::new(store.client()));
    Observe::new(Arc::new(queue)).with_observer(Arc::clone(ear) as _)
}

/// Writes down what it hears, one word for each event.
#[derive(Debug, Default)]
struct Ear(Mutex<Vec<&'static str>>);

impl Ear {
    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().expect("no test panics in here"))
    }
}

impl Observer for Ear {
    fn event(&self, event: &Event<'_>) {
        let word = match event.kind {
            EventKind::Requested => "requested",
            EventKind::Acquired { .. } => "acquired",
            EventKind::Cancelled { .. } => "cancelled",
            EventKind::Failed { .. } => "failed",
            EventKind::Lost { .. } => "lost",
            EventKind::Released { outcome, .. } => outcome,
            EventKind::Renewed { .. } => "renewed",
            EventKind::RenewalFailed { .. } => "failing",
            EventKind::Held => "held",
            EventKind::GivenUp { .. } => "given_up",
            _ => "other",
        };
        self.0.lock().expect("no test panics in here").push(word);
    }
}

#[derive(Debug)]
struct Panics;

impl Observer for Panics {
    fn event(&self, _: &Event<'_>) {
        panic!("a broken observer");
    }
}
