//! The checks of MySQL and MariaDB: a table over what a server says about itself.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use polylock_core::{Fencing, HealthCheck, HealthRule, Status};

use super::server::{CLOCK_FIX, CLOCK_IMPACT, REPLICA, ask, clock, clock_offset, settings, text};
use crate::config::SqlMode;
use crate::error::SqlFailure;
use crate::wire::{Flavor, ServerConnection};

/// Checks a server, and notes which one it is.
pub(super) async fn check(
    connection: &mut ServerConnection,
) -> Result<Vec<HealthCheck>, SqlFailure> {
    let variables = settings(connection, VARIABLES).await?;
    let rights = ask(connection, RIGHTS).await?;
    let asked = SystemTime::now();
    let state = ask(connection, STATE).await?;
    let version = text(state.rows.first().and_then(|row| row.get(1)));
    let facts = MySqlFacts {
        mode: connection.target.config.mode,
        may_write_anyway: rights.int(0).unwrap_or(0) > 0,
        variables,
        clock_offset: state.int(0).and_then(|server| clock_offset(asked, server)),
    };
    let target = &connection.target;
    target.reported_fencing.get_or_init(|| facts.fencing());
    target.reported_flavor.get_or_init(|| flavor(&version));
    Ok(HealthRule::check_all(RULES, &facts))
}

fn flavor(version: &str) -> Flavor {
    match version.to_ascii_lowercase().contains("mariadb") {
        true => Flavor::MariaDb,
        false => Flavor::MySql,
    }
}

const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only',
    'super_read_only', 'innodb_read_only', 'innodb_flush_log_at_trx_commit', 'log_bin',
    'sync_binlog', 'wsrep_on', 'group_replication_single_primary_mode',
    'group_replication_group_name')";

/// A grantee is written 'user'@'host', the user itself without the quotes.
const RIGHTS: &str = "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.user_privileges
    WHERE REPLACE(grantee, '''', '') = CURRENT_USER() AND privilege_type IN
    ('SUPER', 'CONNECTION_ADMIN', 'READ_ONLY ADMIN', 'READ ONLY ADMIN')";

const STATE: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), VERSION()";

/// What a server says about itself, and what is asked of it.
#[derive(Clone, Debug)]
struct MySqlFacts {
    mode: SqlMode,
    /// Whether `read_only` does not hold for this user.
    may_write_anyway: bool,
    variables: HashMap<String, String>,
    clock_offset: Option<Duration>,
}

impl MySqlFacts {
    fn is(&self, name: &str, value: &str) -> bool {
        let found = self.variables.get(name);
        found.is_some_and(|found| found.eq_ignore_ascii_case(value))
    }

    fn is_on(&self, name: &str) -> bool {
        self.is(name, "ON") || self.is(name, "1")
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.variables.get(name)?.parse().ok()
    }

    /// MariaDB 12 uses words for its other values.
    fn is_read_only(&self) -> bool {
        let is_off = self.is(READ_ONLY, "OFF") || self.is(READ_ONLY, "0");
        self.variables.contains_key(READ_ONLY) && !is_off
    }

    /// The variable that forbids writes to this user.
    fn forbids_writes(&self) -> Option<&'static str> {
        let always = ["innodb_read_only", "super_read_only"];
        let always = always.into_iter().find(|name| self.is_on(name));
        let others = self.is_read_only() && !self.may_write_anyway;
        always.or_else(|| others.then_some(READ_ONLY))
    }

    /// The reason why other servers accept writes as well, each with its own row locks and named locks.
    fn other_writers(&self) -> Option<&'static str> {
        let group = self.variables.get("group_replication_group_name");
        if self.is_on("wsrep_on") {
            Some("the server is a node of a Galera cluster")
        } else if self.is("group_replication_single_primary_mode", "OFF")
            && group.is_none_or(|name| !name.is_empty())
        {
            Some("the server is one of several primaries of a replication group")
        } else {
            None
        }
    }

    /// The value of a variable that does not flush each commit.
    fn unflushed(&self, name: &str) -> Option<i64> {
        self.number(name).filter(|value| *value != 1)
    }

    fn unflushed_log(&self) -> Option<i64> {
        self.unflushed(SYNC_BINLOG)
            .filter(|_| self.is_on("log_bin"))
    }

    /// How far tokens can be trusted after a crash of the server.
    fn fencing(&self) -> Fencing {
        match self.number(FLUSH) {
            Some(1) => Fencing::Strong,
            _ => Fencing::BestEffort,
        }
    }
}

const FLUSH: &str = "innodb_flush_log_at_trx_commit";
const READ_ONLY: &str = "read_only";
const SYNC_BINLOG: &str = "sync_binlog";

const REPLICAS: &str = "replicas are not looked at: a failover to one that lacks the last writes \
                        loses locks, and tokens may go back";

const RULES: &[HealthRule<MySqlFacts>] = &[
    HealthRule {
        id: REPLICA,
        rule: |facts| Status::Error.because(format!("{} is on", facts.forbids_writes()?)),
        impact: "it takes no writes, and may be a replica",
        fix: "name its source",
    },
    HealthRule {
        id: REPLICA,
        rule: |facts| match facts.forbids_writes() {
            Some(_) => None,
            None if facts.is_read_only() => {
                Status::Warning.because("read_only is on, and this user may write all the same")
            }
            None => Status::Ok.because("the server takes writes"),
        },
        impact: "the server may be a replica, whose locks do not exclude clients of its source",
        fix: "name its source",
    },
    HealthRule {
        id: "galera",
        rule: |facts| match facts.other_writers() {
            None => Status::Ok.because("no other server takes writes to its tables"),
            Some(what) if facts.mode == SqlMode::Lease => {
                Status::Ok.because(format!("{what}, and leases go by its rows"))
            }
            Some(what) => Status::Error.because(what),
        },
        impact: "other nodes do not see its row locks and named locks",
        fix: "use mode=lease",
    },
    HealthRule {
        id: "flush",
        rule: |facts| match facts.unflushed(FLUSH) {
            Some(value) => Status::Warning.because(format!("{FLUSH} is {value}")),
            None if !facts.variables.contains_key(FLUSH) => {
                Status::NotChecked.because(format!("the server does not tell {FLUSH}"))
            }
            None if facts.unflushed_log().is_some() => None,
            None => Status::Ok.because("what is committed is on the disk"),
        },
        impact: "a crash takes back the fencing tokens and the leases of the last second",
        fix: "set it to 1",
    },
    HealthRule {
        id: "flush",
        rule: |facts| {
            Status::Warning.because(format!("{SYNC_BINLOG} is {}", facts.unflushed_log()?))
        },
        impact: "a crash of the machine can take committed locks from its replicas",
        fix: "set it to 1",
    },
    HealthRule {
        id: "replication",
        rule: |facts| match facts.is("log_bin", "OFF") || facts.is("log_bin", "0") {
            true => Status::Ok.because("the server writes no binary log, which replicas read"),
            false => Status::NotChecked.because(REPLICAS),
        },
        impact: "",
        fix: "",
    },
    HealthRule {
        id: "clock",
        rule: |facts| clock(facts.clock_offset, facts.mode),
        impact: CLOCK_IMPACT,
        fix: CLOCK_FIX,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 5] = [
        (FLUSH, "1"),
        ("innodb_read_only", "OFF"),
        ("log_bin", "OFF"),
        (READ_ONLY, "OFF"),
        (SYNC_BINLOG, "0"),
    ];

    fn facts(mode: SqlMode, changes: &[(&str, &str)]) -> MySqlFacts {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        MySqlFacts {
            mode,
            may_write_anyway: false,
            variables: GOOD.iter().chain(changes).map(own).collect(),
            clock_offset: Some(Duration::from_secs(1)),
        }
    }

    /// Asserts that all checks are made, and these are the faults.
    fn assert_faults(facts: &MySqlFacts, expected: &[(&str, Status, &str)]) {
        let checks = HealthRule::check_all(RULES, facts);
        let mut ids: Vec<_> = checks.iter().map(|check| check.id).collect();
        ids.dedup();
        let all = ["replica", "galera", "flush", "replication", "clock"];
        assert_eq!(ids, all, "{facts:?}");
        let faults: Vec<_> = checks.iter().filter(|check| check.is_fault()).collect();
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, (id, status, says)) in faults.into_iter().zip(expected) {
            assert_eq!((fault.id, fault.status), (*id, *status), "{fault}");
            assert!(fault.to_string().contains(says), "{fault}");
        }
    }

    #[test]
    fn a_server_says_which_it_is() {
        assert_eq!(flavor("10.11.14-MariaDB-0+deb12u2"), Flavor::MariaDb);
        assert_eq!(flavor("8.0.36"), Flavor::MySql);
    }

    #[test]
    fn each_variable_is_found_by_itself() {
        use Status::{Error, Warning};
        const SINGLE: &str = "group_replication_single_primary_mode";
        const GROUP: &str = "group_replication_group_name";
        let cases = [
            (
                &[(READ_ONLY, "ON")][..],
                "replica",
                Error,
                "read_only is on",
            ),
            (&[(READ_ONLY, "NO_LOCK")], "replica", Error, "a replica"),
            (&[("super_read_only", "ON")], "replica", Error, "super_read"),
            (&[("innodb_read_only", "1")], "replica", Error, "innodb_re"),
            (&[("wsrep_on", "ON")], "galera", Error, "Galera"),
            (
                &[(SINGLE, "OFF"), (GROUP, "a-b")],
                "galera",
                Error,
                "several primaries",
            ),
            (&[(FLUSH, "2")], "flush", Warning, "is 2"),
            (&[("log_bin", "ON")], "flush", Warning, "sync_binlog is 0"),
            (
                &[("log_bin", "ON"), (SYNC_BINLOG, "7")],
                "flush",
                Warning,
                "sync_binlog is 7",
            ),
        ];
        for (changes, id, status, says) in cases {
            for mode in [SqlMode::Row, SqlMode::Advisory] {
                assert_faults(&facts(mode, changes), &[(id, status, says)]);
            }
            let facts = facts(SqlMode::Lease, changes);
            match id {
                "galera" => assert_faults(&facts, &[]),
                _ => assert_faults(&facts, &[(id, status, says)]),
            }
        }
        let quiet = facts(SqlMode::Row, &[(SINGLE, "OFF"), (GROUP, "")]);
        assert_faults(&quiet, &[]);
    }

    #[test]
    fn leases_alone_end_by_the_clock_of_the_server() {
        for (mode, offset, status) in [
            (SqlMode::Lease, Some(3), Status::Warning),
            (SqlMode::Lease, Some(1), Status::Ok),
            (SqlMode::Lease, None, Status::NotChecked),
            (SqlMode::Row, Some(3), Status::Ok),
        ] {
            let found = clock(offset.map(Duration::from_secs), mode);
            assert_eq!(found.expect("it is checked").0, status, "{mode:?}");
        }
    }

    #[test]
    fn tokens_are_strong_where_each_commit_is_flushed() {
        let fencing = |changes: &[_]| facts(SqlMode::Row, changes).fencing();
        assert_eq!(fencing(&[]), Fencing::Strong);
        assert_eq!(fencing(&[(FLUSH, "0")]), Fencing::BestEffort);
        let mut untold = facts(SqlMode::Row, &[]);
        untold.variables.remove(FLUSH);
        assert_eq!(untold.fencing(), Fencing::BestEffort);
    }

    #[test]
    fn replicas_are_not_looked_at_where_there_may_be_some() {
        let replication = |changes: &[_]| {
            let checks = HealthRule::check_all(RULES, &facts(SqlMode::Lease, changes));
            let mut found = checks.into_iter().filter(|check| check.id == "replication");
            found.next().expect("it is listed").status
        };
        assert_eq!(replication(&[]), Status::Ok);
        assert_eq!(replication(&[("log_bin", "ON")]), Status::NotChecked);
    }
}
