//! Servers that grant nothing at the moment, or do not answer.

use std::net::TcpListener;

use lock_testkit::servers::{PostgresOptions, PostgresServer};

use crate::fixture::Place;

/// As far as the next client knows, the one that was killed may still rely on its lock.
#[test]
fn a_wait_after_a_restart_of_the_server_says_why_nothing_is_granted() {
    let (server, place) = (PostgresServer::start(PostgresOptions::new()), Place::new());
    let database = server.database();
    let backend = format!("--backend {database}?mode=row&session-timeout=12s");
    drop(place.holder(&format!("{backend} k")));
    server.restart();
    let mut waiter = place.start(&format!("{backend} run -w 60s other -- true"));
    waiter.until_says("waiting for other: ");
    let ended = waiter.expect(0).says(&["locks are granted again in "]);
    let reasons = ended.stderr.matches("granted again").count();
    assert_eq!(reasons, 1, "{ended}");
}

#[test]
fn a_server_that_takes_its_time_is_named_without_its_password() {
    let (silent, place) = (TcpListener::bind("127.0.0.1:0"), Place::new());
    let silent = silent.expect("a free port");
    let port = silent.local_addr().expect("it is bound").port();
    let backend = format!("--backend postgres://app:s3ntinel@127.0.0.1:{port}/x");
    let ended = place.expect(69, &format!("{backend} run k -- touch ran"));
    let named = format!("lockctl: connecting to postgres://app:***@127.0.0.1:{port}/x");
    ended.says(&[&named]).says_nothing_of(&["s3ntinel"]);
    place.assert_not_run();
    let quiet = place.expect(69, &format!("-q {backend} list"));
    quiet.says_nothing_of(&["connecting"]);
}
