//! On a server.
#![cfg(feature = "redis")]

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock::LostReason;
use polylock::prelude::*;

use crate::page::observer;

#[tokio::test]
async fn a_lock_that_is_broken_on_the_server_is_counted_as_lost() {
    let server = RedisServer::start(RedisOptions::new());
    let (observer, page) = observer();
    let registry = polylock::compiled_in().with_observer(Arc::new(observer));
    let locks = registry.connect(&server.url()).await.unwrap();
    let request = locks.request("orders/42").class("orders");
    let guard = request.acquire().await.unwrap();
    let held = r#"dlock_held{backend="redis",lock="orders"}"#;
    assert_eq!(page.value(held), Some(1.0));

    let admin = locks.admin().expect("Redis has one");
    let broken = admin.break_lock(guard.key(), "test").await.unwrap();
    assert!(broken.is_some());
    let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost().into_future());
    assert_eq!(lost.await.unwrap(), LostReason::Broken);
    let lost = r#"dlock_lost_total{backend="redis",lock="orders",reason="broken"}"#;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    // The waiters of a loss are woken before the observer is told.
    while page.value(lost).is_none() && tokio::time::Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    assert_eq!(page.value(lost), Some(1.0));
    assert_eq!(page.value(held), Some(0.0));
    drop(guard.release().await);
    let ends = page.sum("dlock_hold_duration_seconds_count", "orders");
    assert_eq!(ends, 1.0);
}
