//! Several keys at once: which holder is named while one of them is waited for.

use lock_testkit::servers::{
    MariaDbServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
};
use rustix::process::Signal;

use crate::common::Place;
use crate::fixture::{UNTIL_GO, side_by_side, until};

/// Waits for two keys while another process holds the second one, and checks who is named.
fn assert_holder_of_second_key_is_named(backend: &str) {
    let place = Place::new();
    let mut holder = place.start(&[
        "--backend",
        backend,
        "run",
        "--note",
        "other",
        "b",
        "--",
        "sh",
        "-c",
        "touch begun; exec sleep 60",
    ]);
    place.until_there("begun");
    let pid = holder.pid().as_raw_nonzero().get();
    let mut waiter = place.lockctl(&["--backend", backend, "run", "-w", "4s"]);
    waiter.args(["--events", "events", "b", "a", "--", "touch", "ran"]);
    let waiter = crate::common::Process::start(waiter);
    let waiting = place.event("waiting");
    assert_eq!(waiting["key"], "b", "{backend}: {waiting}");
    assert_eq!(waiting["holders"][0]["pid"], pid, "{backend}: {waiting}");
    let ended = waiter.expect(75);
    let lines: Vec<_> = ended.stderr.lines().collect();
    let holder = format!("pid {pid}");
    for (line, part) in [
        (0, "lockctl: waiting for b, a  b  held by "),
        (0, &holder),
        (1, "lockctl: error: b is held (waited "),
        (2, &holder),
    ] {
        let line = lines.get(line).copied().unwrap_or_default();
        assert!(line.contains(part), "no {part:?} in {line:?}: {ended}");
    }
    assert!(
        !place.file("ran").exists(),
        "{backend}: the command ran without its locks"
    );
}

/// The same in each mode of a database.
fn assert_holder_is_named_in_each_mode(database: impl Fn() -> String) {
    let urls = ["row", "lease", "advisory"].map(|mode| format!("{}?mode={mode}", database()));
    side_by_side(&urls, |url| assert_holder_of_second_key_is_named(url));
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
    assert_holder_is_named_in_each_mode(|| server.database());
}

#[test]
fn holder_of_second_key_is_named_on_mariadb() {
    let server = MariaDbServer::shared();
    assert_holder_is_named_in_each_mode(|| server.database());
}

#[test]
fn the_next_key_that_is_waited_for_is_told_as_well() {
    let place = Place::new();
    let _first = place.hold("a", UNTIL_GO);
    let mut second = place.holder("b");
    let waiter = place.start("run --events events a b -- true");
    let until_named = |expected: &[&str]| {
        until(&format!("the holders of {expected:?} are named"), || {
            let events = place.events();
            let keys = events
                .iter()
                .map(|event| event["key"].as_str().unwrap_or_default());
            keys.eq(expected.iter().copied())
        });
    };
    until_named(&["a"]);
    place.go();
    until_named(&["a", "b"]);
    second.signal(Signal::TERM);
    let ended = waiter.expect(0);
    let told = ended.stderr.matches("waiting for a, b").count();
    assert_eq!(told, 2, "{ended}");
}
