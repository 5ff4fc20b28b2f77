use std::time::Duration;

use lock_core::{Fencing, HealthCheck, Status};

use super::facts::{Facts, Wanted};
use super::start::{fencing, health_checks};
use crate::config::SqlMode;

const MODES: [SqlMode; 3] = [SqlMode::Advisory, SqlMode::Lease, SqlMode::Row];

const GOOD: [(&str, &str); 7] = [
    ("server_version", "15.4"),
    ("server_version_num", "150004"),
    ("transaction_read_only", "off"),
    ("synchronous_commit", "on"),
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("statement_timeout", "0"),
];

fn good() -> Facts {
    with(&[])
}

fn with(changes: &[(&str, &str)]) -> Facts {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Facts {
        settings: GOOD.iter().chain(changes).map(own).collect(),
        clock_offset: Some(Duration::ZERO),
        ..Facts::default()
    }
}

fn wanted(mode: SqlMode) -> Wanted {
    Wanted {
        mode,
        timeout: Duration::from_secs(5),
        trusts_clock: mode == SqlMode::Lease,
    }
}

/// What is wrong, and whether that may pass.
fn faults(facts: &Facts, mode: SqlMode) -> Vec<(HealthCheck, bool)> {
    let found = health_checks(facts, &wanted(mode));
    let faults = found.into_iter().filter(|found| found.health.is_fault());
    faults.map(|found| (found.health, found.passes)).collect()
}

#[test]
fn a_good_server_has_no_fault_and_something_to_say_for_each_check() {
    for mode in MODES {
        assert_eq!(faults(&good(), mode), []);
        let found = health_checks(&good(), &wanted(mode));
        let names: Vec<_> = found.iter().map(|found| found.health.id).collect();
        let all = [
            "version",
            "replica",
            "flush",
            "replication",
            "time-limits",
            "clock",
        ];
        assert_eq!(names, all);
        assert!(found.iter().all(|found| !found.health.summary.is_empty()));
    }
}

#[test]
fn each_setting_is_found_by_itself() {
    use SqlMode::{Lease, Row};
    use Status::{Error, Warning};
    for (mode, name, value, check, status, says) in [
        (
            Row,
            "transaction_read_only",
            "on",
            "replica",
            Error,
            "read-only",
        ),
        (
            Row,
            "server_version_num",
            "100023",
            "version",
            Error,
            "15.4",
        ),
        (
            Row,
            "server_version_num",
            "130001",
            "version",
            Warning,
            "14 or later",
        ),
        (
            Row,
            "synchronous_commit",
            "off",
            "flush",
            Warning,
            "fencing tokens",
        ),
        (Row, "fsync", "off", "flush", Warning, "fsync is off"),
        (Row, "full_page_writes", "off", "flush", Warning, "damage"),
        (
            Lease,
            "statement_timeout",
            "4999",
            "time-limits",
            Warning,
            "is 4.999s",
        ),
        (Row, "lock_timeout", "1", "time-limits", Warning, "is 1ms"),
        (
            Row,
            "transaction_timeout",
            "3600000",
            "time-limits",
            Warning,
            "mode=lease",
        ),
    ] {
        let found = faults(&with(&[(name, value)]), mode);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        let (health, passes) = &found[0];
        assert_eq!((health.id, health.status), (check, status), "{name}");
        assert!(!passes && health.to_string().contains(says), "{health}");
    }
    let limit = with(&[("transaction_timeout", "3600000")]);
    assert_eq!(faults(&limit, Lease), []);
}

#[test]
fn a_standby_keeps_no_locks_for_now() {
    let mut facts = good();
    facts.is_in_recovery = true;
    let found = faults(&facts, SqlMode::Lease);
    assert!(
        matches!(&found[..], [(health, true)] if health.id == "replica"),
        "{found:?}"
    );
}

#[test]
fn standbys_are_to_be_waited_for() {
    let named = ("synchronous_standby_names", "*");
    for (changes, is_safe) in [
        (&[][..], false),
        (&[named], true),
        (&[named, ("synchronous_commit", "local")], false),
        (&[named, ("synchronous_commit", "remote_write")], true),
    ] {
        let mut facts = with(changes);
        assert_eq!(faults(&facts, SqlMode::Row), [], "{changes:?}");
        assert_eq!(fencing(&facts), Fencing::Strong);
        facts.standbys = 1;
        let found = faults(&facts, SqlMode::Row);
        let checks: Vec<_> = found.iter().map(|(health, _)| health.id).collect();
        let (expected, trust): (&[_], _) = match is_safe {
            true => (&[], Fencing::Strong),
            false => (&["replication"], Fencing::BestEffort),
        };
        assert_eq!(
            (&checks[..], fencing(&facts)),
            (expected, trust),
            "{changes:?}"
        );
    }
}

#[test]
fn a_standby_that_nobody_waits_for_is_one_too_many() {
    let mut facts = with(&[("synchronous_standby_names", "s1")]);
    (facts.standbys, facts.asynchronous) = (2, 1);
    let found = faults(&facts, SqlMode::Row);
    let [(health, _)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert!(health.summary.contains("1 of its 2 standbys"), "{health}");
    assert_eq!(fencing(&facts), Fencing::BestEffort);
}
