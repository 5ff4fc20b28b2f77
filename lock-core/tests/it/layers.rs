//! `Prefix` and `Observe`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylock_core::admin::{LockAdmin, watch_by_polling};
use polylock_core::layers::{EventKind, Observe, Prefix};
use polylock_core::memory::{Fault, Request};
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, ErrorKind, LostReason};

use super::server::fake::Fake;
use super::support::{in_time, memory, on_event, queued, secs, settle, start, try_start};

fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("is a key")
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_seen_by_the_store_alone() {
    let store = memory();
    let shop = Prefix::new(Arc::new(store.client()), "shop").unwrap();
    let guard = shop.lock("orders/42").await.unwrap();
    assert_eq!(guard.key().as_str(), "orders/42");
    let stored = store.list("").await.unwrap();
    assert_eq!(stored[0].key.as_str(), "shop:orders/42");
    let other = Prefix::new(Arc::new(store.client()), "bank").unwrap();
    assert!(other.try_lock("orders/42").await.unwrap().is_some());
    let refused = shop.lock_within("orders/42", Duration::ZERO).await;
    let key = key("orders/42");
    assert_eq!(refused.unwrap_err().key(), Some(&key));

    let admin = shop.admin().unwrap();
    let listed = admin.list("orders/").await.unwrap();
    assert_eq!(listed[0].key, key);
    let seen = admin.inspect(&key).await.unwrap().expect("it is held");
    assert_eq!(seen.holders.len(), 1);
    let broken = admin.break_lock(&key, "test").await.unwrap();
    assert_eq!(broken.expect("it was held").key, key);
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
async fn an_observer_that_panics_breaks_no_lock() {
    let observer = on_event(|_| panic!("a broken observer"));
    let locks = Observe::new(Arc::new(memory())).with_observer(observer);
    drop(locks.lock("k").await.unwrap());
    let guard = locks.lock("k").await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_panics_keeps_no_waiter_from_the_lock() {
    let _log = tracing::subscriber::set_default(OnLine(break_down));
    let (store, locks) = queued();
    let guard = locks.lock("k").await.unwrap();
    let request = AcquireRequest::new(key("k")).with_wait(Wait::AtMost(secs(60)));
    let next = try_start(&locks, request);
    tokio::task::yield_now().await;
    store.break_lock(guard.key(), "for the test").await.unwrap();
    assert_eq!(in_time("the loss", guard.lost()).await, LostReason::Broken);
    let next = next.await.unwrap();
    assert!(next.is_ok(), "the waiter was not told of the loss");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_panics_in_a_release_keeps_no_waiter_from_the_lock() {
    let _log = tracing::subscriber::set_default(OnLine(break_down));
    let (server, locks) = Fake::new().queued();
    server.state().refuses_hand_overs = true;
    let first = locks.lock("k").await.unwrap();
    let waiters = [(); 2].map(|()| start(&locks, AcquireRequest::new(key("k"))));
    settle().await;
    assert_eq!(first.release().await.unwrap(), Released::Clean);
    for waiter in waiters {
        drop(in_time("the grant to the waiter", waiter).await.unwrap());
    }
    assert!(locks.shutdown(secs(2)).await);
    assert!(!server.is_taken());
}

#[tokio::test(start_paused = true)]
async fn of_renewals_that_fail_in_a_row_the_first_alone_is_a_warning() {
    let levels = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&levels);
    let note = move |line: &tracing::Event<'_>| {
        seen.lock().unwrap().push(*line.metadata().level());
    };
    let _log = tracing::subscriber::set_default(OnLine(note));
    let store = memory();
    let failures = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&failures);
    let observer = on_event(move |event| {
        if let EventKind::RenewalFailed { failures, .. } = event.kind {
            noted.lock().unwrap().push(failures);
        }
    });
    let locks = Observe::new(Arc::new(store.client())).with_observer(observer);
    let guard = locks.request("k").ttl(secs(30)).acquire().await.unwrap();
    for _ in 0..2 {
        for _ in 0..3 {
            store.faults().plan(Request::Renew, Fault::LostRequest);
        }
        tokio::time::sleep(secs(20)).await;
    }
    assert!(guard.is_held());
    let levels = levels.lock().unwrap();
    let of_level = |level| levels.iter().filter(|seen| **seen == level).count();
    assert_eq!(*failures.lock().unwrap(), [1, 2, 3, 1, 2, 3]);
    assert_eq!(of_level(tracing::Level::WARN), 2, "{levels:?}");
    assert_eq!(of_level(tracing::Level::DEBUG), 4, "{levels:?}");
}

/// Nothing else tells the user of a watch that it sees nothing.
#[tokio::test(start_paused = true)]
async fn a_watch_whose_polls_fail_for_seconds_says_so_once() {
    let levels = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&levels);
    let note = move |line: &tracing::Event<'_>| {
        seen.lock().unwrap().push(*line.metadata().level());
    };
    let _log = tracing::subscriber::set_default(OnLine(note));
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let events = watch_by_polling(move || {
        let is_down = down.load(Ordering::SeqCst);
        async move {
            match is_down {
                true => Err(Error::new(ErrorKind::Unavailable, "the server is down")),
                false => Ok(Vec::new()),
            }
        }
    });
    let _events = events.await.unwrap();
    let (warn, debug) = (tracing::Level::WARN, tracing::Level::DEBUG);
    for (down, seconds, expected) in [
        (true, 4, &[][..]),
        (false, 4, &[]),
        (true, 4, &[]),
        (true, 60, &[warn]),
        (false, 1, &[warn, debug]),
        (true, 10, &[warn, debug, warn]),
    ] {
        is_down.store(down, Ordering::SeqCst);
        tokio::time::sleep(secs(seconds)).await;
        assert_eq!(*levels.lock().unwrap(), expected, "{down} for {seconds} s");
    }
}

/// A log that panics at the lines of this crate.
fn break_down(line: &tracing::Event<'_>) {
    let target = line.metadata().target();
    let is_broken = ["polylock_core::event", "polylock_core::guard::release"]
        .iter()
        .any(|broken| target.starts_with(broken));
    assert!(!is_broken, "a broken log");
}

/// A log that does this at each line.
struct OnLine<F>(F);

impl<F: Fn(&tracing::Event<'_>) + Send + Sync + 'static> tracing::Subscriber for OnLine<F> {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        (self.0)(event);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
