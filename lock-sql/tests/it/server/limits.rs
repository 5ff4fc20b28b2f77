//! Limits that an administrator has set for all statements, which waits outlast, and the limit of
//! connections.

use std::sync::Arc;

use lock_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};
use polylock_core::ErrorKind;
use polylock_core::layers::acquire_all;

use crate::server::support::{Mode, Site, ms, request, sessions, take, until};

const MODES: [Mode; 3] = [Mode::Row, Mode::Advisory, Mode::Lease];

/// The holder keeps the lock for longer than any limit, and the waiter gets it nevertheless.
async fn a_wait_outlasts_limits(site: Site) {
    let (holder, waiter) = (site.open().await, site.open().await);
    let guard = take(&holder, "job").await;
    let waiting = tokio::spawn(async move { take(&waiter, "job").await });
    until("it waits", async || {
        !site.is_session() || site.waiters().await > 0
    })
    .await;
    tokio::time::sleep(ms(2_000)).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    guard.release().await.expect("it is released");
    let next = waiting.await.expect("it is granted");
    next.release().await.expect("it is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_outlasts_the_limits_of_postgres() {
    let options = PostgresOptions::new()
        .with_config("statement_timeout", "800ms")
        .with_config("lock_timeout", "700ms");
    let server = Arc::new(PostgresServer::start(options));
    for mode in MODES {
        a_wait_outlasts_limits(Site::postgres(&server, mode)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_outlasts_the_limits_of_mariadb() {
    let options = MariaDbOptions::new()
        .with_config("max_statement_time", "0.9")
        .with_config("innodb_lock_wait_timeout", "1")
        .with_config("lock_wait_timeout", "1");
    let server = Arc::new(MariaDbServer::start(options));
    for mode in MODES {
        a_wait_outlasts_limits(Site::mariadb(&server, mode)).await;
    }
}

/// With row locks, each of them needs a connection.
async fn as_many_keys_as_connections_are_granted_at_once(site: Site) {
    let locks = site.clone().with_connections(3).open().await;
    let all = ["a", "b", "c", "d"].map(request);
    let three = acquire_all(&locks, &all[..3]).await;
    for guard in three.expect("there are three connections") {
        guard.release().await.expect("it is released");
    }
    let four = acquire_all(&locks, &all).await;
    if site.mode == Mode::Advisory {
        assert_eq!(four.expect("one connection has all").len(), 4);
        return;
    }
    let error = four.expect_err("it can never be granted");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(error.message().contains("connections=4"), "{error}");
}

sessions!(as_many_keys_as_connections_are_granted_at_once);
