//! Locks that live with a session, from the command line.

#![cfg(feature = "zk")]

mod common;

use std::time::{Duration, Instant};

use lock_testkit::servers::ZooKeeperServer;
use serde_json::json;

use crate::common::{Place, SOON};

/// A directory of ZooKeeper that no other test has.
fn url(test: &str) -> String {
    let server = ZooKeeperServer::shared();
    let process = std::process::id();
    format!(
        "{}/lockctl-{test}-{process}?session-timeout=2s",
        server.url()
    )
}

#[test]
fn a_command_is_not_stopped_by_a_session_shorter_than_its_lease() {
    let (place, url) = (Place::new(), url("run"));
    // The time to stop that follows from the ttl is longer than the session is ever valid.
    let (code, said) = place.code(&[
        "--backend",
        &url,
        "run",
        "--ttl",
        "30s",
        "k",
        "--",
        "sleep",
        "4",
    ]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_held_lock_is_seen_and_broken_and_stops_its_command() {
    let (place, url) = (Place::new(), url("break"));
    let holder = place.hold(
        &["--backend", &url, "--note", "reindex", "a/b"],
        "exec sleep 60",
    );
    let listed = place.json(&["--backend", &url, "list"]);
    assert_eq!(listed["locks"][0]["key"], json!("a/b"), "{listed}");
    assert_eq!(listed["locks"][0]["holders"][0]["note"], json!("reindex"));
    let (code, _) = place.code(&["--backend", &url, "try", "a/b"]);
    assert_ne!(code, 0, "it is held");
    let began = Instant::now();
    let (code, said) = place.code(&["--backend", &url, "break", "--yes", "a/b"]);
    assert_eq!(code, 0, "{said}");
    let ended = holder.output();
    assert!(
        !ended.status.success(),
        "the command went on without its lock"
    );
    assert!(began.elapsed() < SOON / 2 + Duration::from_secs(5));
    let (code, said) = place.code(&["--backend", &url, "try", "a/b"]);
    assert_eq!(code, 0, "{said}");
}
