//! Several keys at once: which holder is named while one of them is waited for.

use std::time::{Duration, Instant};

use lock_testkit::servers::{
    MariaDbServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
};
use rustix::process::Signal;

use crate::fixture::{Place, UNTIL_GO, side_by_side, until};

/// Waits for two keys while another process holds the second one, and checks who is named.
fn assert_holder_of_second_key_is_named(backend: &str) {
    let place = Place::new();
    let holder = place.holder(&format!("--backend {backend} b"));
    let pid = holder.child.id();
    let options = "-w 10s --events events b a -- touch ran";
    let waiter = place.start(&format!("--backend {backend} run {options}"));
    // On a busy machine there may be an event without a holder before it.
    until(&format!("{backend}: the holder of b is told"), || {
        let mut events = place.events().into_iter();
        events.any(|event| {
            event["event"] == "waiting" && event["key"] == "b" && event["holders"][0]["pid"] == pid
        })
    });
    let ended = waiter.expect(75);
    let holder = format!("pid {pid}");
    let mut lines = ended.stderr.lines().peekable();
    // The last of them names the holder.
    let mut waited_for = "";
    while let Some(line) = lines.next_if(|line| line.starts_with("lockctl: waiting for ")) {
        waited_for = line;
    }
    let (error, named) = (lines.next(), lines.next());
    for (line, part) in [
        (
            Some(waited_for),
            "lockctl: waiting for b (2 of 2)  held by ",
        ),
        (Some(waited_for), &holder),
        (error, "lockctl: error: b is held (waited "),
        (named, &holder),
    ] {
        let line = line.unwrap_or_default();
        assert!(line.contains(part), "no {part:?} in {line:?}: {ended}");
    }
    place.assert_not_run();
}

#[test]
fn holder_of_second_key_is_named_on_every_backend() {
    let redis = RedisServer::start(RedisOptions::new());
    let (postgres, mariadb) = (PostgresServer::shared(), MariaDbServer::shared());
    let root = format!("lockctl-keys-{}", std::process::id());
    let zookeeper = format!("{}/{root}", ZooKeeperServer::shared().url());
    let mut backends = vec!["sqlite:locks.db".to_owned(), redis.url(), zookeeper];
    for mode in ["row", "lease", "advisory"] {
        let databases = [postgres.database(), mariadb.database()];
        backends.extend(databases.map(|database| format!("{database}?mode={mode}")));
    }
    for some in backends.chunks(3) {
        side_by_side(some, |backend| {
            assert_holder_of_second_key_is_named(backend);
        });
    }
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
            // Those of a busy machine may name none at first.
            let keys = events.iter().filter_map(|event| event["key"].as_str());
            keys.eq(expected.iter().copied())
        });
    };
    until_named(&["a"]);
    place.go();
    until_named(&["a", "b"]);
    second.signal(Signal::TERM);
    let ended = waiter.expect(0);
    for told in ["a (1 of 2)", "b (2 of 2)"] {
        let line = format!("lockctl: waiting for {told}  held by ");
        let lines = ended
            .stderr
            .lines()
            .filter(|other| other.starts_with(&line));
        assert_eq!(lines.count(), 1, "{told}: {ended}");
    }
}

/// It could never have them all.
#[test]
fn more_keys_than_connections_are_refused_at_once() {
    let databases = [
        PostgresServer::shared().database(),
        MariaDbServer::shared().database(),
    ];
    let keys = (1..=12).map(|n| format!(" k{n}")).collect::<String>();
    for database in databases {
        let place = Place::new();
        let began = Instant::now();
        let line = format!("--backend {database}?mode=row run -w 60s{keys} -- touch ran");
        place.expect(78, &line).says(&["connections=12"]);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(10), "refused after {took:?}");
        place.assert_not_run();
    }
}
