//! Locks that live with a session, from the command line.

use lock_testkit::servers::ZooKeeperServer;

use crate::fixture::Place;

#[test]
fn a_command_is_not_stopped_by_a_session_shorter_than_its_lease() {
    let (url, process) = (ZooKeeperServer::shared().url(), std::process::id());
    let url = format!("{url}/lockctl-run-{process}?session-timeout=4s");
    let place = Place::new();
    // The time to stop that follows from the ttl is 5 s, longer than the session is ever valid.
    // The command takes longer than the session lives without a heartbeat.
    place.expect(0, &format!("--backend {url} run --ttl 30s k -- sleep 5"));
}
