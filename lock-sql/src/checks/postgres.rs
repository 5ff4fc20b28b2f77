//! What is looked at on PostgreSQL.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use lock_core::Fencing;

use super::finding::{Finding, Weight};
use super::{MOST_OFFSET, clock_offset, text};
use crate::config::{SqlConfig, SqlMode};
use crate::error::Failure;
use crate::wire::{Connection, Sql, Target};

pub(super) async fn check(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<Vec<Finding>, Failure> {
    let facts = ask(connection).await?;
    target.set_fencing(fencing(&facts));
    Ok(findings(&facts, &Wanted::of(config)))
}

/// What a server says of itself, as this connection sees it.
#[derive(Clone, Debug, Default)]
struct Facts {
    is_in_recovery: bool,
    /// How many servers follow it.
    standbys: i64,
    settings: HashMap<String, String>,
    clock_offset: Option<Duration>,
}

/// What the configuration needs of it.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    mode: SqlMode,
    timeout: Duration,
}

impl Wanted {
    fn of(config: &SqlConfig) -> Self {
        Self {
            mode: config.mode,
            timeout: config.timeout,
        }
    }
}

impl Facts {
    fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.setting(name) == value
    }

    fn version(&self) -> u32 {
        self.setting("server_version_num").parse().unwrap_or(0)
    }

    /// A time-out that is shorter than `needed`.
    fn shorter(&self, name: &str, needed: Duration) -> Option<Duration> {
        let limit = Duration::from_millis(self.setting(name).parse().ok()?);
        Some(limit).filter(|limit| !limit.is_zero() && *limit < needed)
    }
}

fn findings(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(writes(facts));
    found.extend(version(facts));
    found.extend(durability(facts));
    found.extend(replicas(facts));
    found.extend(limits(facts, wanted));
    if !facts.is("default_transaction_isolation", "read committed") {
        let isolation = facts.setting("default_transaction_isolation");
        found.push(Finding::new(
            format!("default_transaction_isolation is {isolation}"),
            "statements that meet on one row fail and are repeated",
            "set it to read committed for this user",
        ));
    }
    if let Some(offset) = facts.clock_offset
        && offset > MOST_OFFSET
        && wanted.mode == SqlMode::Lease
    {
        found.push(Finding::new(
            format!("the clock of the server differs by {} s", offset.as_secs()),
            "a clock that is set by a jump ends leases early, or makes them stay",
            "run a time service that slews clocks on both machines, or write expiry=observer",
        ));
    }
    found
}

fn writes(facts: &Facts) -> Option<Finding> {
    if facts.is_in_recovery {
        let finding = Finding::new(
            "the server is a standby",
            "it takes no writes and knows no locks",
            "name its primary",
        );
        return Some(finding.weighing(Weight::Unavailable));
    }
    facts.is("transaction_read_only", "on").then(|| {
        let finding = Finding::new(
            "transactions are read-only",
            "no lock can be taken",
            "set default_transaction_read_only to off for this user",
        );
        finding.weighing(Weight::Refused)
    })
}

fn version(facts: &Facts) -> Option<Finding> {
    match facts.version() {
        ..OLDEST => {
            let finding = Finding::new(
                format!(
                    "the server is PostgreSQL {}",
                    facts.setting("server_version")
                ),
                "it is older than anything that this library is written for",
                "use PostgreSQL 14 or later",
            );
            Some(finding.weighing(Weight::Refused))
        }
        OLDEST..WATCHFUL => Some(Finding::new(
            format!(
                "the server is PostgreSQL {}",
                facts.setting("server_version")
            ),
            "it does not look after clients that vanish while they wait, and what they hold or wait \
             for stays until TCP gives up",
            "use PostgreSQL 14 or later",
        )),
        _ => None,
    }
}

/// The first version with procedures and with the hashes of passwords that this client knows.
const OLDEST: u32 = 110_000;

/// The first with `client_connection_check_interval` and `idle_session_timeout`.
const WATCHFUL: u32 = 140_000;

fn durability(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.is("synchronous_commit", "off") {
        found.push(Finding::new(
            "synchronous_commit is off",
            "a crash of the server takes back the fencing tokens and the leases of its last moments",
            "set it to on for this user",
        ));
    }
    for name in ["fsync", "full_page_writes"] {
        if facts.is(name, "off") {
            found.push(Finding::new(
                format!("{name} is off"),
                "a crash of the machine can damage the table of locks, or take its last changes back",
                "set it to on",
            ));
        }
    }
    found
}

fn replicas(facts: &Facts) -> Option<Finding> {
    let is_asynchronous = facts.setting("synchronous_standby_names").is_empty();
    (is_asynchronous && facts.standbys > 0).then(|| {
        Finding::new(
            "the server has standbys and does not wait for them",
            "a fail-over loses the locks that have not reached the new primary",
            "set synchronous_standby_names, or check fencing tokens where the data are",
        )
    })
}

/// How far tokens can be trusted after a crash or a fail-over.
fn fencing(facts: &Facts) -> Fencing {
    let loses_commits = facts.is("synchronous_commit", "off") || replicas(facts).is_some();
    match loses_commits {
        true => Fencing::BestEffort,
        false => Fencing::Strong,
    }
}

/// Time-outs of the server that end what this client needs for longer.
fn limits(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut limit = |name: &str, needed: Duration, why, way_out| {
        if let Some(limit) = facts.shorter(name, needed) {
            found.push(Finding::new(format!("{name} is {limit:?}"), why, way_out));
        }
    };
    let statement =
        "statements fail that would be done in the time that the configuration gives them";
    let way_out = "lift it for this user, or write a shorter timeout";
    limit("statement_timeout", wanted.timeout, statement, way_out);
    limit("lock_timeout", wanted.timeout, statement, way_out);
    // Sessions of locks lift the other ones for themselves.
    if wanted.mode == SqlMode::Row {
        let ends = "the server ends the session of a lock while it is held";
        let way_out = "lift it for this user, or use mode=lease";
        limit("transaction_timeout", Duration::MAX, ends, way_out);
    }
    found
}

async fn ask(connection: &mut Connection) -> Result<Facts, Failure> {
    let failed = Failure::of_statement;
    let settings = Sql::new(
        "SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN ('server_version', \
         'server_version_num', 'transaction_read_only', 'synchronous_commit', 'fsync', \
         'full_page_writes', 'synchronous_standby_names', 'default_transaction_isolation', \
         'statement_timeout', 'lock_timeout', 'transaction_timeout')",
    );
    let settings = connection.message(&settings, &[]).await.map_err(failed)?;
    let pair = |row: &Vec<_>| (text(row.first()), text(row.get(1)));
    let settings = settings.rows.iter().map(pair).collect();
    let asked = SystemTime::now();
    let state = Sql::new(
        "SELECT pg_is_in_recovery()::int::bigint, \
         (SELECT count(*) FROM pg_catalog.pg_stat_replication), \
         (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    );
    let state = connection.message(&state, &[]).await.map_err(failed)?;
    Ok(Facts {
        is_in_recovery: state.int(0) == Some(1),
        standbys: state.int(1).unwrap_or(0),
        settings,
        clock_offset: state.int(2).and_then(|server| clock_offset(asked, server)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 7] = [
        ("server_version", "15.4"),
        ("server_version_num", "150004"),
        ("transaction_read_only", "off"),
        ("synchronous_commit", "on"),
        ("fsync", "on"),
        ("default_transaction_isolation", "read committed"),
        ("statement_timeout", "0"),
    ];

    fn good() -> Facts {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Facts {
            settings: GOOD.map(own).into_iter().collect(),
            ..Facts::default()
        }
    }

    fn wanted(mode: SqlMode) -> Wanted {
        Wanted {
            mode,
            timeout: Duration::from_secs(5),
        }
    }

    #[test]
    fn each_setting_is_found_by_itself() {
        for mode in [SqlMode::Advisory, SqlMode::Lease, SqlMode::Row] {
            assert_eq!(findings(&good(), &wanted(mode)), []);
        }
        use Weight::{Refused, Warned};
        for (mode, name, value, weight, says) in [
            (
                SqlMode::Row,
                "transaction_read_only",
                "on",
                Refused,
                "read-only",
            ),
            (
                SqlMode::Row,
                "server_version_num",
                "100023",
                Refused,
                "15.4",
            ),
            (
                SqlMode::Row,
                "server_version_num",
                "130001",
                Warned,
                "14 or later",
            ),
            (
                SqlMode::Row,
                "synchronous_commit",
                "off",
                Warned,
                "fencing tokens",
            ),
            (SqlMode::Row, "fsync", "off", Warned, "fsync is off"),
            (SqlMode::Row, "full_page_writes", "off", Warned, "damage"),
            (
                SqlMode::Lease,
                "default_transaction_isolation",
                "serializable",
                Warned,
                "repeated",
            ),
            (
                SqlMode::Lease,
                "statement_timeout",
                "4999",
                Warned,
                "is 4.999s",
            ),
            (SqlMode::Row, "lock_timeout", "1", Warned, "is 1ms"),
            (
                SqlMode::Row,
                "transaction_timeout",
                "3600000",
                Warned,
                "mode=lease",
            ),
        ] {
            let mut facts = good();
            facts.settings.insert(name.to_owned(), value.to_owned());
            let found = findings(&facts, &wanted(mode));
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert_eq!(found[0].weight, weight, "{name}");
            assert!(found[0].to_string().contains(says), "{}", found[0]);
        }
    }

    #[test]
    fn a_standby_keeps_no_locks() {
        let mut facts = good();
        facts.is_in_recovery = true;
        let found = findings(&facts, &wanted(SqlMode::Lease));
        assert_eq!(found[0].weight, Weight::Unavailable);
    }

    #[test]
    fn standbys_are_to_be_waited_for() {
        let mut facts = good();
        facts.standbys = 1;
        let found = findings(&facts, &wanted(SqlMode::Row));
        assert!(found[0].to_string().contains("fail-over"), "{found:?}");
        let names = ("synchronous_standby_names".to_owned(), "*".to_owned());
        facts.settings.extend([names]);
        assert_eq!(findings(&facts, &wanted(SqlMode::Row)), []);
    }

    #[test]
    fn only_leases_go_by_the_clock_of_the_server() {
        let mut facts = good();
        facts.clock_offset = Some(Duration::from_secs(3));
        assert_eq!(findings(&facts, &wanted(SqlMode::Row)), []);
        let found = findings(&facts, &wanted(SqlMode::Lease));
        assert!(found[0].to_string().contains("differs by 3 s"), "{found:?}");
    }
}
