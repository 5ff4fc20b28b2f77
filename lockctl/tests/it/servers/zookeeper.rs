//! Locks that live with a session, from the command line.

use lock_testkit::servers::ZooKeeperServer;

use crate::fixture::Place;

/// A directory of ZooKeeper that no other test has.
fn url(test: &str) -> String {
    let url = ZooKeeperServer::shared().url();
    format!(
        "{url}/lockctl-{test}-{}?session-timeout=4s",
        std::process::id()
    )
}

#[test]
fn a_command_is_not_stopped_by_a_session_shorter_than_its_lease() {
    let (place, url) = (Place::new(), url("run"));
    // The time to stop that follows from the ttl is 5 s, longer than the session is ever valid.
    // The command takes longer than the session lives without a heartbeat.
    place.expect(0, &format!("--backend {url} run --ttl 30s k -- sleep 5"));
}

#[test]
fn a_held_lock_is_seen_and_broken_and_stops_its_command() {
    let (place, url) = (Place::new(), url("break"));
    let on = |line: &str| format!("--backend {url} {line}");
    let line = on("run --note reindex a/b -- sh -c 'touch begun; exec sleep 60'");
    let holder = place.start(&line);
    place.until_there("begun");
    let listed = place.json(&on("list"));
    assert_eq!(listed["locks"][0]["key"], "a/b", "{listed}");
    assert_eq!(
        listed["locks"][0]["holders"][0]["note"], "reindex",
        "{listed}"
    );
    place.expect(75, &on("try a/b"));
    place.expect(0, &on("break --yes a/b"));
    holder.expect(79);
    place.expect(0, &on("try a/b"));
}
