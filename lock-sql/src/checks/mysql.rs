//! What is looked at on MySQL and MariaDB.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use lock_core::Fencing;

use super::finding::{Finding, Weight};
use super::{MOST_OFFSET, clock_offset, text};
use crate::config::{SqlConfig, SqlMode};
use crate::error::Failure;
use crate::wire::{Connection, Flavour, Sql, Target};

/// Finds out which server it is, and looks at it.
pub(super) async fn check(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<Vec<Finding>, Failure> {
    let facts = ask(connection).await?;
    target.set_fencing(fencing(&facts));
    target.set_flavour(flavour(&facts.version));
    Ok(findings(&facts, config.mode))
}

/// What a server says of itself.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// Such as `8.0.36` or `10.11.4-MariaDB-1~deb12u1`.
    version: String,
    /// Whether `read_only` does not hold for this user.
    may_write_anyway: bool,
    /// The global variables, and what they are.
    variables: HashMap<String, String>,
    clock_offset: Option<Duration>,
}

impl Facts {
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
}

fn flavour(version: &str) -> Flavour {
    match version.to_ascii_lowercase().contains("mariadb") {
        true => Flavour::MariaDb,
        false => Flavour::MySql,
    }
}

fn findings(facts: &Facts, mode: SqlMode) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(version(&facts.version));
    found.extend(writes(facts));
    found.extend(several_writers(facts, mode));
    found.extend(log_of_statements(facts));
    found.extend(durability(facts));
    if let Some(offset) = facts.clock_offset
        && offset > MOST_OFFSET
        && mode == SqlMode::Lease
    {
        found.push(Finding::new(
            format!("the clock of the server differs by {} s", offset.as_secs()),
            "a clock that is set by a jump ends leases early, or makes them stay",
            "run a time service that slews clocks on both machines, or write expiry=observer",
        ));
    }
    found
}

fn version(text: &str) -> Option<Finding> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|n| n.parse::<u32>().ok());
    let version = (number()?, number()?);
    let (name, oldest, way_out) = match flavour(text) {
        Flavour::MariaDb => ("MariaDB", (10, 3), "use MariaDB 10.6 or later"),
        Flavour::MySql => ("MySQL", (8, 0), "use MySQL 8.0 or later"),
    };
    (version < oldest).then(|| {
        let finding = Finding::new(
            format!("the server is {name} {}.{}", version.0, version.1),
            "it cannot say at once that a row is locked",
            way_out,
        );
        finding.weighing(Weight::Refused)
    })
}

fn writes(facts: &Facts) -> Option<Finding> {
    let find = |what: &str, weight| {
        let (why, way_out) = (
            "it takes no writes, and may be a replica",
            "name its source",
        );
        Some(Finding::new(what, why, way_out).weighing(weight))
    };
    if facts.is_on("innodb_read_only") {
        return find("innodb_read_only is on", Weight::Unavailable);
    }
    if facts.is_on("super_read_only") {
        return find("super_read_only is on", Weight::Unavailable);
    }
    // MariaDB 12 has words for what else it can be.
    let is_off = facts.is("read_only", "OFF") || facts.is("read_only", "0");
    if is_off || !facts.variables.contains_key("read_only") {
        return None;
    }
    if facts.may_write_anyway {
        let finding = Finding::new(
            "read_only is on, and this user may write all the same",
            "the server may be a replica, whose locks exclude nobody on its source",
            "name its source",
        );
        return Some(finding);
    }
    find("read_only is on", Weight::Unavailable)
}

/// Servers of which several take writes, each with row locks and named locks of its own.
fn several_writers(facts: &Facts, mode: SqlMode) -> Option<Finding> {
    let what = if facts.is_on("wsrep_on") {
        "the server is a node of a Galera cluster"
    } else if facts.is("group_replication_single_primary_mode", "OFF")
        && facts.variables.get("group_replication_group_name") != Some(&String::new())
    {
        "the server is one of several primaries of a replication group"
    } else {
        return None;
    };
    let why = "other nodes do not see its row locks and named locks";
    let finding = Finding::new(what, why, "use mode=lease");
    (mode != SqlMode::Lease).then(|| finding.weighing(Weight::Refused))
}

/// With READ COMMITTED, which keeps locks from waiting for rows that they are not about, InnoDB refuses
/// every write whose text would go into the log.
fn log_of_statements(facts: &Facts) -> Option<Finding> {
    let is_so = facts.is_on("log_bin") && facts.is("binlog_format", "STATEMENT");
    is_so.then(|| {
        let finding = Finding::new(
            "binlog_format is STATEMENT",
            "no write of a READ COMMITTED transaction can be logged so, and locks are written by such",
            "set it to ROW or MIXED",
        );
        finding.weighing(Weight::Refused)
    })
}

fn durability(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = "innodb_flush_log_at_trx_commit";
    if let Some(value) = facts.number(name).filter(|value| *value != 1) {
        found.push(Finding::new(
            format!("{name} is {value}"),
            "a crash takes back the fencing tokens and the leases of the last second",
            "set it to 1",
        ));
    }
    if facts.is_on("log_bin")
        && let Some(value) = facts.number("sync_binlog").filter(|value| *value != 1)
    {
        found.push(Finding::new(
            format!("sync_binlog is {value}"),
            "a crash of the machine can take committed locks from its replicas",
            "set it to 1",
        ));
    }
    found
}

/// How far tokens can be trusted after a crash of the server.
fn fencing(facts: &Facts) -> Fencing {
    match facts.number("innodb_flush_log_at_trx_commit") {
        // Without a word about it, it is as MySQL has it.
        Some(1) | None => Fencing::Strong,
        Some(_) => Fencing::BestEffort,
    }
}

async fn ask(connection: &mut Connection) -> Result<Facts, Failure> {
    let failed = Failure::of_statement;
    let variables = Sql::new(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only', \
         'innodb_read_only', 'innodb_flush_log_at_trx_commit', 'log_bin', 'binlog_format', 'sync_binlog', \
         'wsrep_on', 'group_replication_single_primary_mode', 'group_replication_group_name')",
    );
    let variables = connection.message(&variables, &[]).await.map_err(failed)?;
    let pair = |row: &Vec<_>| (text(row.first()).to_ascii_lowercase(), text(row.get(1)));
    let variables = variables.rows.iter().map(pair).collect();
    // A grantee is written 'user'@'host', the user itself without the quotes.
    let rights = Sql::new(
        "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.user_privileges \
         WHERE REPLACE(grantee, '''', '') = CURRENT_USER() AND privilege_type IN \
         ('SUPER', 'CONNECTION_ADMIN', 'READ_ONLY ADMIN', 'READ ONLY ADMIN')",
    );
    let rights = connection.message(&rights, &[]).await.map_err(failed)?;
    let asked = SystemTime::now();
    let state =
        Sql::new("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), VERSION()");
    let state = connection.message(&state, &[]).await.map_err(failed)?;
    let version = state.rows.first().and_then(|row| row.get(1));
    Ok(Facts {
        version: text(version),
        may_write_anyway: rights.int(0).unwrap_or(0) > 0,
        variables,
        clock_offset: state.int(0).and_then(|server| clock_offset(asked, server)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ..Facts::default()
        }
    }

    const MARIADB: &str = "10.11.14-MariaDB-0+deb12u2";

    #[test]
    fn a_server_says_which_it_is() {
        assert_eq!(flavour(MARIADB), Flavour::MariaDb);
        assert_eq!(flavour("8.0.36"), Flavour::MySql);
        for (version, is_old) in [
            (MARIADB, false),
            ("8.0.36", false),
            ("9.1.0-commercial", false),
            ("5.7.44-log", true),
            ("10.2.44-MariaDB", true),
            ("unheard of", false),
        ] {
            let found = findings(&facts(version, &[]), SqlMode::Row);
            assert_eq!(!found.is_empty(), is_old, "{version}");
        }
    }

    #[test]
    fn each_variable_is_found_by_itself() {
        use Weight::{Refused, Unavailable, Warned};
        type Changes = &'static [(&'static str, &'static str)];
        let cases: [(Changes, Weight, &str); 10] = [
            (&[("read_only", "ON")], Unavailable, "read_only is on"),
            (&[("read_only", "NO_LOCK")], Unavailable, "replica"),
            (&[("super_read_only", "ON")], Unavailable, "super_read_only"),
            (
                &[("innodb_read_only", "ON")],
                Unavailable,
                "innodb_read_only",
            ),
            (&[("wsrep_on", "ON")], Refused, "Galera"),
            (
                &[
                    ("group_replication_single_primary_mode", "OFF"),
                    ("group_replication_group_name", "a-b"),
                ],
                Refused,
                "several primaries",
            ),
            (&[("innodb_flush_log_at_trx_commit", "2")], Warned, "is 2"),
            (
                &[("log_bin", "ON"), ("sync_binlog", "1")],
                Refused,
                "binlog_format is STATEMENT",
            ),
            (
                &[("log_bin", "ON"), ("binlog_format", "MIXED")],
                Warned,
                "sync_binlog is 0",
            ),
            (
                &[
                    ("log_bin", "ON"),
                    ("binlog_format", "ROW"),
                    ("sync_binlog", "7"),
                ],
                Warned,
                "sync_binlog is 7",
            ),
        ];
        for (changes, weight, says) in cases {
            let found = findings(&facts(MARIADB, changes), SqlMode::Row);
            assert_eq!(found.len(), 1, "{changes:?}: {found:?}");
            assert_eq!(found[0].weight, weight, "{changes:?}");
            assert!(found[0].to_string().contains(says), "{}", found[0]);
        }
    }

    #[test]
    fn a_good_server_is_good() {
        for mode in [SqlMode::Advisory, SqlMode::Lease, SqlMode::Row] {
            assert_eq!(findings(&facts(MARIADB, &[]), mode), []);
        }
        let galera = facts(MARIADB, &[("wsrep_on", "ON")]);
        assert_eq!(findings(&galera, SqlMode::Lease), []);
        let quiet = ("group_replication_single_primary_mode", "OFF");
        let alone = facts("8.0.36", &[quiet, ("group_replication_group_name", "")]);
        assert_eq!(findings(&alone, SqlMode::Row), []);
    }

    #[test]
    fn who_may_write_all_the_same_is_warned() {
        let mut facts = facts(MARIADB, &[("read_only", "ON")]);
        facts.may_write_anyway = true;
        let found = findings(&facts, SqlMode::Row);
        assert_eq!(found[0].weight, Weight::Warned);
    }
}
