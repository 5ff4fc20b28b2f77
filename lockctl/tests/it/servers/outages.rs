//! Servers that grant nothing at the moment.

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
