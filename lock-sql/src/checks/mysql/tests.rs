use std::time::Duration;

use lock_core::{Finding, Verdict};

use super::facts::{Facts, flavor};
use super::more::{engine, idle_timeout, lock_wait};
use super::start;
use crate::checks::finding::Found;
use crate::config::{SqlConfig, SqlMode};
use crate::wire::Flavor;

const MODES: [SqlMode; 3] = [SqlMode::Advisory, SqlMode::Lease, SqlMode::Row];

const GOOD: [(&str, &str); 6] = [
    ("binlog_format", "STATEMENT"),
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

fn findings(facts: &Facts, mode: SqlMode) -> Vec<Found> {
    start::findings(facts, mode, mode == SqlMode::Lease)
}

/// What is wrong, and whether that may pass.
fn faults(facts: &Facts, mode: SqlMode) -> Vec<(Finding, bool)> {
    let found = findings(facts, mode).into_iter();
    let faults = found.filter(|found| found.finding.is_fault());
    faults.map(|found| (found.finding, found.passes)).collect()
}

#[test]
fn a_server_says_which_it_is() {
    assert_eq!(flavor(MARIADB), Flavor::MariaDb);
    assert_eq!(flavor("8.0.36"), Flavor::MySql);
    for (version, verdict) in [
        (MARIADB, Verdict::Good),
        ("8.0.36", Verdict::Good),
        ("9.1.0-commercial", Verdict::Good),
        ("5.7.44-log", Verdict::Error),
        ("10.2.44-MariaDB", Verdict::Error),
        ("unheard of", Verdict::Unknown),
    ] {
        let found = findings(&facts(version, &[]), SqlMode::Row);
        assert_eq!(found[0].finding.verdict, verdict, "{version}");
        assert_eq!(found[0].finding.check, "version");
        assert!(found[1..].iter().all(|found| !found.finding.is_fault()));
    }
}

#[test]
fn each_variable_is_found_by_itself() {
    use Verdict::{Error, Warning};
    type Changes = &'static [(&'static str, &'static str)];
    const PRIMARIES: Changes = &[
        ("group_replication_single_primary_mode", "OFF"),
        ("group_replication_group_name", "a-b"),
    ];
    const LOGGED: Changes = &[("log_bin", "ON"), ("sync_binlog", "1")];
    const MIXED: Changes = &[("log_bin", "ON"), ("binlog_format", "MIXED")];
    const ROW: Changes = &[
        ("log_bin", "ON"),
        ("binlog_format", "ROW"),
        ("sync_binlog", "7"),
    ];
    let cases: [(Changes, &str, Verdict, bool, &str); 10] = [
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
        (LOGGED, "binlog", Error, false, "binlog_format is STATEMENT"),
        (MIXED, "flush", Warning, false, "sync_binlog is 0"),
        (ROW, "flush", Warning, false, "sync_binlog is 7"),
    ];
    for (changes, check, verdict, passes, says) in cases {
        let found = faults(&facts(MARIADB, changes), SqlMode::Row);
        assert_eq!(found.len(), 1, "{changes:?}: {found:?}");
        let finding = &found[0].0;
        let shown = (finding.check, finding.verdict, found[0].1);
        assert_eq!(shown, (check, verdict, passes), "{changes:?}");
        assert!(finding.to_string().contains(says), "{finding}");
    }
}

#[test]
fn a_good_server_is_good() {
    for mode in MODES {
        let found = findings(&facts(MARIADB, &[]), mode);
        let good = |found: &Found| found.finding.verdict == Verdict::Good;
        assert!(found.iter().all(good), "{found:?}");
        let names: Vec<_> = found.iter().map(|found| found.finding.check).collect();
        let all = ["version", "replica", "galera", "binlog", "flush", "clock"];
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
    assert_eq!(found[0].0.verdict, Verdict::Warning);
}

#[test]
fn time_outs_are_faults_where_locks_do_not_set_them() {
    for (mode, seconds, is_fault) in [
        (SqlMode::Lease, "9", true),
        (SqlMode::Lease, "10", false),
        (SqlMode::Row, "1", false),
        (SqlMode::Advisory, "1", false),
    ] {
        let config = SqlConfig::mysql("db").with_mode(mode);
        let found = idle_timeout(&facts(MARIADB, &[("wait_timeout", seconds)]), &config);
        assert_eq!(found.is_fault(), is_fault, "{mode:?} {seconds}: {found}");
    }
    let config = SqlConfig::mysql("db");
    for (seconds, is_pooled, is_fault) in [
        ("0", true, true),
        ("4", true, true),
        ("5", true, false),
        ("0", false, false),
    ] {
        let facts = facts(MARIADB, &[("innodb_lock_wait_timeout", seconds)]);
        let found = lock_wait(&facts, &config, is_pooled);
        assert_eq!(found.is_fault(), is_fault, "{seconds} {is_pooled}: {found}");
    }
    let nothing = facts(MARIADB, &[]);
    assert_eq!(idle_timeout(&nothing, &config).verdict, Verdict::Unknown);
    assert_eq!(lock_wait(&nothing, &config, true).verdict, Verdict::Unknown);
}

#[test]
fn row_locks_need_an_engine_that_has_some() {
    use SqlMode::{Lease, Row};
    use Verdict::{Error, Good, Unknown, Warning};
    for (name, has_innodb, mode, verdict) in [
        (Some("InnoDB"), None, Row, Good),
        (Some("MyISAM"), Some(true), Row, Error),
        (Some("Aria"), Some(true), Lease, Warning),
        (None, Some(true), Row, Good),
        (None, Some(false), Row, Error),
        (None, None, Row, Unknown),
    ] {
        let found = engine(name, has_innodb, mode);
        assert_eq!(found.verdict, verdict, "{found}");
    }
}
