//! Several keys at once: who is named while one of them is waited for.

#![cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]

mod common;

use std::fs;

use lock_testkit::servers::{
    MariaDbServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
};
use rustix::process::Signal;

use crate::common::{Place, until};

/// Waits for two keys while somebody else holds the second one, and checks who is named.
fn assert_holder_of_second_key_is_named(backend: &str) {
    let place = Place::new();
    let holder = place.hold(
        &["--backend", backend, "--note", "other", "b"],
        "exec sleep 60",
    );
    let pid = holder.pid().as_raw_nonzero().get();
    let line = [
        "--backend",
        backend,
        "run",
        "-w",
        "4s",
        "--events",
        "events",
        "b",
        "a",
        "--",
        "touch",
        "ran",
    ];
    let waiter = place.start(&line);
    let waiting = place.event("waiting");
    assert_eq!(waiting["key"], "b", "{backend}: {waiting}");
    assert_eq!(waiting["holders"][0]["pid"], pid, "{backend}: {waiting}");
    let said = waiter.said();
    let lines: Vec<_> = said.lines().collect();
    assert!(
        lines[0].starts_with("lockctl: waiting for b, a  b  held by "),
        "{backend}: {said}"
    );
    let holder = format!("pid {pid}");
    assert!(lines[0].contains(&holder), "{backend}: {said}");
    assert!(
        lines[1].starts_with("lockctl: error: b is held (waited "),
        "{backend}: {said}"
    );
    assert!(lines[2].contains(&holder), "{backend}: {said}");
    assert!(!place.file("ran").exists());
}

#[test]
fn holder_of_second_key_is_named_on_sqlite() {
    assert_holder_of_second_key_is_named("sqlite:locks.db");
}

#[test]
fn holder_of_second_key_is_named_on_redis() {
    let server = RedisServer::start(RedisOptions::new());
    assert_holder_of_second_key_is_named(&server.url());
}

#[test]
fn holder_of_second_key_is_named_on_zookeeper() {
    let server = ZooKeeperServer::shared();
    let url = format!("{}/lockctl-keys-{}", server.url(), std::process::id());
    assert_holder_of_second_key_is_named(&url);
}

#[test]
fn holder_of_second_key_is_named_on_postgres() {
    let server = PostgresServer::shared();
    for mode in ["row", "lease", "advisory"] {
        assert_holder_of_second_key_is_named(&format!("{}?mode={mode}", server.database()));
    }
}

#[test]
fn holder_of_second_key_is_named_on_mariadb() {
    let server = MariaDbServer::shared();
    for mode in ["row", "lease", "advisory"] {
        assert_holder_of_second_key_is_named(&format!("{}?mode={mode}", server.database()));
    }
}

#[test]
fn the_next_key_that_is_waited_for_is_told_as_well() {
    let place = Place::new();
    let _first = place.hold(&["a"], "until test -e go; do sleep 0.01; done");
    let second = place.hold(&["b"], "exec sleep 60");
    let waiter = place.start(&["run", "--events", "events", "a", "b", "--", "true"]);
    let keys = || {
        let events = place.events().into_iter();
        let keys = events.map(|event| event["key"].as_str().unwrap_or_default().to_owned());
        keys.collect::<Vec<_>>()
    };
    until("the first holder is named", || keys() == ["a"]);
    fs::write(place.file("go"), "").unwrap();
    until("the second holder is named", || keys() == ["a", "b"]);
    second.signal(Signal::TERM);
    let said = waiter.said();
    let waiting = said
        .lines()
        .filter(|line| line.contains("waiting for a, b"));
    assert_eq!(waiting.count(), 2, "{said}");
}
