//! Locks that live with a session, from the command line.

use lock_testkit::servers::ZooKeeperServer;

use crate::fixture::Place;

/// A directory of ZooKeeper that no other test has.
fn url(test: &str) -> String {
    let (url, process) = (ZooKeeperServer::shared().url(), std::process::id());
    format!("{url}/lockctl-{test}-{process}?session-timeout=4s")
}

#[test]
fn a_command_is_not_stopped_by_a_session_shorter_than_its_lease() {
    let (place, url) = (Place::new(), url("run"));
    // The time to stop that follows from the ttl is 5 s, longer than the session is ever valid.
    // The command takes longer than the session lives without a heartbeat.
    place.expect(0, &format!("--backend {url} run --ttl 30s k -- sleep 5"));
}

#[test]
fn a_held_lock_is_broken_and_stops_its_command() {
    let (place, url) = (Place::new(), url("break"));
    let holder = place.holder(&format!("--backend {url} a/b"));
    place.expect(0, &format!("--backend {url} break --yes a/b"));
    holder.expect(79);
    place.expect(0, &format!("--backend {url} try a/b"));
}
