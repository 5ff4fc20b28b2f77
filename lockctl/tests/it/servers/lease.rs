//! Leases without a process, on servers.

use std::time::SystemTime;

use lock_testkit::servers::{RedisOptions, RedisServer};

use crate::fixture::{Place, UNTIL_GO, until};

/// The first lease after a wait is shorter than the later ones, and nothing renews it.
#[test]
fn a_lease_that_was_waited_for_lasts_as_long_as_its_ttl() {
    let (server, place) = (RedisServer::start(RedisOptions::new()), Place::new());
    let backend = format!("--backend {}", server.url());
    let holder = place.hold(&format!("{backend} k"), UNTIL_GO);
    let waiter = place.start(&format!("--format json {backend} acquire k --ttl 1m"));
    until("acquire is in the queue", || {
        let shown = place.json(&format!("{backend} inspect k"));
        let waiters = shown["lock"]["waiters"].as_array();
        waiters.is_some_and(|waiters| !waiters.is_empty())
    });
    place.go();
    holder.expect(0);
    let ended = waiter.expect(0);
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("1970 is over");
    let shown = place.json(&format!("{backend} inspect k"));
    let deadline = ended.json()["deadline_unix_ms"].as_u64().map(u128::from);
    assert!(
        deadline > Some(now.as_millis() + 30_000),
        "it is {now:?}: {ended}"
    );
    let left = shown["lock"]["holders"][0]["lease_left_ms"].as_u64();
    assert!(left > Some(30_000), "{left:?} ms are left: {shown}");
}
