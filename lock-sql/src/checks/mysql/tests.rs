use std::time::Duration;

use lock_core::{HealthCheck, Status};

use super::facts::{Facts, flavor};
use super::start;
use crate::checks::found::Found;
use crate::config::SqlMode;
use crate::wire::Flavor;

const MODES: [SqlMode; 3] = [SqlMode::Advisory, SqlMode::Lease, SqlMode::Row];

const GOOD: [(&str, &str); 5] = [
    ("innodb_flush_log_at_trx_commit", "1"),
    ("innodb_read_only", "OFF"),
    ("log_bin", "OFF"),
    ("read_only", "OFF"),
    ("sync_binlog", "0"),
];

fn facts(version: &str, changes: &[(&str, &str)]) -> Facts {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Facts {
        version: version.to_owned(),
        variables: GOOD.iter().chain(changes).map(own).collect(),
        clock_offset: Some(Duration::ZERO),
        ..Facts::default()
    }
}

const MARIADB: &str = "10.11.14-MariaDB-0+deb12u2";

fn health_checks(facts: &Facts, mode: SqlMode) -> Vec<Found> {
    start::health_checks(facts, mode, mode == SqlMode::Lease)
}

/// What is wrong, and whether that may pass.
fn faults(facts: &Facts, mode: SqlMode) -> Vec<(HealthCheck, bool)> {
    let found = health_checks(facts, mode).into_iter();
    let faults = found.filter(|found| found.health.is_fault());
    faults.map(|found| (found.health, found.passes)).collect()
}

#[test]
fn a_server_says_which_it_is() {
    assert_eq!(flavor(MARIADB), Flavor::MariaDb);
    assert_eq!(flavor("8.0.36"), Flavor::MySql);
    for (version, status) in [
        (MARIADB, Status::Ok),
        ("8.0.36", Status::Ok),
        ("9.1.0-commercial", Status::Ok),
        ("5.7.44-log", Status::Error),
        ("10.2.44-MariaDB", Status::Error),
        ("unheard of", Status::NotChecked),
    ] {
        let found = health_checks(&facts(version, &[]), SqlMode::Row);
        assert_eq!(found[0].health.status, status, "{version}");
        assert_eq!(found[0].health.id, "version");
        assert!(found[1..].iter().all(|found| !found.health.is_fault()));
    }
}

#[test]
fn each_variable_is_found_by_itself() {
    use Status::{Error, Warning};
    type Changes = &'static [(&'static str, &'static str)];
    const PRIMARIES: Changes = &[
        ("group_replication_single_primary_mode", "OFF"),
        ("group_replication_group_name", "a-b"),
    ];
    const UNSYNCED: Changes = &[("log_bin", "ON")];
    const SELDOM: Changes = &[("log_bin", "ON"), ("sync_binlog", "7")];
    let cases: [(Changes, &str, Status, bool, &str); 9] = [
        (
            &[("read_only", "ON")],
            "replica",
            Error,
            true,
            "read_only is on",
        ),
        (
            &[("read_only", "NO_LOCK")],
            "replica",
            Error,
            true,
            "replica",
        ),
        (
            &[("super_read_only", "ON")],
            "replica",
            Error,
            true,
            "super_read_only",
        ),
        (
            &[("innodb_read_only", "ON")],
            "replica",
            Error,
            true,
            "innodb_read_only",
        ),
        (&[("wsrep_on", "ON")], "galera", Error, false, "Galera"),
        (PRIMARIES, "galera", Error, false, "several primaries"),
        (
            &[("innodb_flush_log_at_trx_commit", "2")],
            "flush",
            Warning,
            false,
            "is 2",
        ),
        (UNSYNCED, "flush", Warning, false, "sync_binlog is 0"),
        (SELDOM, "flush", Warning, false, "sync_binlog is 7"),
    ];
    for (changes, check, status, passes, says) in cases {
        let found = faults(&facts(MARIADB, changes), SqlMode::Row);
        assert_eq!(found.len(), 1, "{changes:?}: {found:?}");
        let health = &found[0].0;
        let shown = (health.id, health.status, found[0].1);
        assert_eq!(shown, (check, status, passes), "{changes:?}");
        assert!(health.to_string().contains(says), "{health}");
    }
}

#[test]
fn a_good_server_is_good() {
    for mode in MODES {
        let found = health_checks(&facts(MARIADB, &[]), mode);
        let good = |found: &Found| found.health.status == Status::Ok;
        assert!(found.iter().all(good), "{found:?}");
        let names: Vec<_> = found.iter().map(|found| found.health.id).collect();
        let all = ["version", "replica", "galera", "flush", "clock"];
        assert_eq!(names, all);
    }
    let galera = facts(MARIADB, &[("wsrep_on", "ON")]);
    assert_eq!(faults(&galera, SqlMode::Lease), []);
    let quiet = ("group_replication_single_primary_mode", "OFF");
    let alone = facts("8.0.36", &[quiet, ("group_replication_group_name", "")]);
    assert_eq!(faults(&alone, SqlMode::Row), []);
}

#[test]
fn who_may_write_all_the_same_is_warned() {
    let mut facts = facts(MARIADB, &[("read_only", "ON")]);
    facts.may_write_anyway = true;
    let found = faults(&facts, SqlMode::Row);
    assert_eq!(found[0].0.status, Status::Warning);
}
