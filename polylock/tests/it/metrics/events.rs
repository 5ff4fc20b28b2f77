//! Renewals, losses and errors of the lock service, on a store that fails as planned.

use std::sync::Arc;
use std::time::Duration;

use polylock::engine::Engine;
use polylock::layers::Observe;
use polylock::memory::{Fault, Memory, Reachable, Request};
use polylock::prelude::*;
use tokio::time::sleep;

use super::{Page, observer};

fn observed() -> (Memory, Observe, Page) {
    let (observer, page) = observer();
    let store = Memory::with_engine(Engine::on_current_runtime("memory"));
    let locks = Observe::new(Arc::new(store.client())).with_observer(Arc::new(observer));
    (store, locks, page)
}

#[tokio::test(start_paused = true)]
async fn the_slack_is_what_the_lease_had_left() {
    let (store, locks, page) = observed();
    let request = locks.request("k").ttl(Duration::from_secs(30));
    let _guard = request.acquire().await.unwrap();
    let slack = r#"polylock_renewal_slack_seconds_sum{backend="memory"}"#;
    sleep(Duration::from_secs(11)).await;
    // A renewal is due at a third of the ttl, and a tenth of it is kept back.
    let on_time = page.value(slack).expect("it was renewed");
    assert!((15.0..18.0).contains(&on_time), "{on_time} s");

    store.faults().plan(Request::Renew, Fault::LostRequest);
    sleep(Duration::from_secs(12)).await;
    let late = page.value(slack).expect("it was renewed") - on_time;
    assert!(
        (10.0..on_time).contains(&late),
        "{late} s after {on_time} s"
    );
    let renewals = |outcome: &str| {
        page.value(&format!(
            r#"polylock_renewals_total{{backend="memory",outcome="{outcome}"}}"#
        ))
    };
    assert_eq!(renewals("ok"), Some(2.0));
    assert_eq!(renewals("failed"), Some(1.0));
    let errors = r#"polylock_backend_errors_total{backend="memory",kind="unavailable"}"#;
    assert_eq!(page.value(errors), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_counted_once_and_by_its_reason() {
    let (store, locks, page) = observed();
    let guard = locks.request("k").class("orders").acquire().await.unwrap();
    store.faults().set_reachable(Reachable::Cut);
    guard.lost().into_future().await;
    drop(guard.release().await);
    let lost = r#"polylock_lost_total{backend="memory",class="orders",reason="unreachable"}"#;
    assert_eq!(page.value(lost), Some(1.0));
    let ends = page.sum("polylock_hold_duration_seconds_count", "orders");
    assert_eq!(ends, 1.0, "the release of a lost lock is no second end");
    assert_eq!(page.sum("polylock_release_duration_seconds_count", ""), 0.0);
}

/// A lock that is held for less than a third of its ttl is not renewed.
#[tokio::test(start_paused = true)]
async fn a_loss_that_only_the_release_finds_is_counted() {
    let (store, locks, page) = observed();
    for min_hold in [Duration::ZERO, Duration::from_secs(2)] {
        let request = locks.request("k").class("orders").min_hold(min_hold);
        let guard = request.acquire().await.unwrap();
        store.expire(&LockKey::new("k").unwrap());
        assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    }
    let lost = r#"polylock_lost_total{backend="memory",class="orders",reason="unknown"}"#;
    assert_eq!(page.value(lost), Some(2.0));
    for name in ["hold", "release"] {
        let ends = format!("polylock_{name}_duration_seconds_count");
        assert_eq!(page.sum(&ends, "already_lost"), 2.0, "{name}");
    }
    assert_eq!(page.sum("polylock_held", "orders"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_min_hold_that_the_server_did_not_confirm_is_no_clean_end() {
    let (store, locks, page) = observed();
    let request = locks.request("k").min_hold(Duration::from_secs(20));
    let guard = request.acquire().await.unwrap();
    store.faults().set_reachable(Reachable::Cut);
    guard.release().await.unwrap_err();
    let ends = |end: &str| page.sum("polylock_hold_duration_seconds_count", end);
    assert_eq!((ends("failed"), ends("expiring")), (1.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn a_release_is_timed_and_a_hold_includes_it() {
    let (store, locks, page) = observed();
    let guard = locks.lock("k").await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let late = Fault::LateReply(Duration::from_secs(1));
    store.faults().plan(Request::Release, late);
    guard.release().await.unwrap();
    let sum = |name: &str| page.sum(&format!("polylock_{name}_duration_seconds_sum"), "released");
    assert!((1.0..1.1).contains(&sum("release")), "{} s", sum("release"));
    assert!((3.0..3.1).contains(&sum("hold")), "{} s", sum("hold"));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_cannot_be_reached_is_an_error_and_no_timeout() {
    let (store, locks, page) = observed();
    store.faults().set_reachable(Reachable::Cut);
    let error = locks.lock_within("k", Duration::from_secs(1)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    let name = "polylock_acquire_duration_seconds_count";
    assert_eq!(page.sum(name, r#"outcome="error""#), 1.0);
    let errors = page.sum("polylock_backend_errors_total", r#"kind="unavailable""#);
    assert_eq!(errors, 1.0);
}
