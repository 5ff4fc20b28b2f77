use std::time::Duration;

use lock_core::{Fencing, Finding, Verdict};

use super::facts::{Facts, Wanted};
use super::more::{idle_timeout, keepalive};
use super::start::{fencing, findings};
use crate::config::SqlMode;

const MODES: [SqlMode; 3] = [SqlMode::Advisory, SqlMode::Lease, SqlMode::Row];

const GOOD: [(&str, &str); 8] = [
    ("server_version", "15.4"),
    ("server_version_num", "150004"),
    ("transaction_read_only", "off"),
    ("synchronous_commit", "on"),
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("default_transaction_isolation", "read committed"),
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
        session_timeout: Duration::from_secs(30),
        trusts_clock: mode == SqlMode::Lease,
        listens: mode == SqlMode::Lease,
        is_pooled: false,
    }
}

/// What is wrong, and whether that may pass.
fn faults(facts: &Facts, mode: SqlMode) -> Vec<(Finding, bool)> {
    let found = findings(facts, &wanted(mode));
    let faults = found.into_iter().filter(|found| found.finding.is_fault());
    faults.map(|found| (found.finding, found.passes)).collect()
}

#[test]
fn a_good_server_has_no_fault_and_something_to_say_for_each_check() {
    for mode in MODES {
        assert_eq!(faults(&good(), mode), []);
        let found = findings(&good(), &wanted(mode));
        let names: Vec<_> = found.iter().map(|found| found.finding.check).collect();
        let all = [
            "version",
            "replica",
            "flush",
            "replication",
            "time-limits",
            "isolation",
            "clock",
        ];
        assert_eq!(names, all);
        assert!(found.iter().all(|found| !found.finding.what.is_empty()));
    }
}

#[test]
fn each_setting_is_found_by_itself() {
    use SqlMode::{Lease, Row};
    use Verdict::{Error, Warning};
    for (mode, name, value, check, verdict, says) in [
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
            "default_transaction_isolation",
            "serializable",
            "isolation",
            Warning,
            "repeated",
        ),
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
        let (finding, passes) = &found[0];
        assert_eq!((finding.check, finding.verdict), (check, verdict), "{name}");
        assert!(!passes && finding.to_string().contains(says), "{finding}");
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
        matches!(&found[..], [(finding, true)] if finding.check == "replica"),
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
        let checks: Vec<_> = found.iter().map(|(finding, _)| finding.check).collect();
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
    let [(finding, _)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert!(finding.what.contains("1 of its 2 standbys"), "{finding}");
    assert_eq!(fencing(&facts), Fencing::BestEffort);
}

#[test]
fn only_who_listens_is_ended_for_being_idle() {
    let name = "idle_session_timeout";
    for (mode, millis, is_fault) in [
        (SqlMode::Lease, "2000", true),
        (SqlMode::Lease, "5000", true),
        (SqlMode::Lease, "60000", false),
        (SqlMode::Lease, "0", false),
        (SqlMode::Row, "2000", false),
        (SqlMode::Advisory, "2000", false),
    ] {
        let found = idle_timeout(&with(&[(name, millis)]), &wanted(mode));
        assert_eq!(found.is_fault(), is_fault, "{mode:?} {millis}: {found}");
        assert_eq!(found.what.contains(name), millis != "0", "{found}");
    }
    let mut quiet = wanted(SqlMode::Lease);
    quiet.listens = false;
    assert!(!idle_timeout(&with(&[(name, "2000")]), &quiet).is_fault());
    let inside = [("idle_in_transaction_session_timeout", "500")];
    let found = idle_timeout(&with(&inside), &wanted(SqlMode::Row));
    let says = "idle_in_transaction_session_timeout is 500ms, and sessions of locks set it to 30s";
    assert_eq!(found, Finding::good("idle-timeout", says));
}

#[test]
fn hosts_that_vanish_are_noticed() {
    let facts = with(&[("tcp_keepalives_idle", "7200")]);
    for mode in MODES {
        let is_session = mode != SqlMode::Lease;
        let found = keepalive(&facts, &wanted(mode), false);
        assert_eq!(found.is_fault(), is_session, "{found}");
        assert_eq!(found.what.contains("is 7200 s"), is_session, "{found}");
        assert!(!keepalive(&facts, &wanted(mode), true).is_fault());
        let pooled = Wanted {
            is_pooled: true,
            ..wanted(mode)
        };
        assert!(!keepalive(&facts, &pooled, false).is_fault());
    }
}
