//! On a server.
#![cfg(feature = "redis")]

use std::sync::Arc;

use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock::LostReason;
use polylock::prelude::*;

use super::page::observer;

#[tokio::test]
async fn a_lock_that_is_broken_on_the_server_is_counted_as_lost() {
    let server = RedisServer::start(RedisOptions::new());
    let (observer, page) = observer();
    let registry = polylock::compiled_in().with_observer(Arc::new(observer));
    let locks = registry.connect(&server.url()).await.unwrap();
    let request = locks.request("orders/42").class("orders");
    let guard = request.acquire().await.unwrap();
    let held = r#"polylock_held{backend="redis",class="orders"}"#;
    assert_eq!(page.value(held), Some(1.0));

    let admin = locks.admin().expect("Redis has one");
    let broken = admin.break_lock(guard.key(), "test").await.unwrap();
    assert!(broken.is_some());
    // The next renewal hears of it.
    let error = guard.renew().await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Broken));
    let lost = r#"polylock_lost_total{backend="redis",class="orders",reason="broken"}"#;
    assert_eq!(page.value(lost), Some(1.0));
    assert_eq!(page.value(held), Some(0.0));
    drop(guard.release().await);
    let ends = page.sum("polylock_hold_duration_seconds_count", "orders");
    assert_eq!(ends, 1.0);
}
