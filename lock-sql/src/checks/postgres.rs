//! The checks of PostgreSQL: a table over what a server says about itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polylock_core::{Fencing, HealthCheck, HealthRule, Status};

use super::server::{CLOCK_FIX, CLOCK_IMPACT, REPLICA, ask, clock, clock_offset, settings, text};
use crate::config::SqlMode;
use crate::error::SqlFailure;
use crate::wire::ServerConnection;

pub(super) async fn check(
    connection: &mut ServerConnection,
) -> Result<Vec<HealthCheck>, SqlFailure> {
    let target = Arc::clone(&connection.target);
    let config = &target.config;
    let settings = settings(connection, SETTINGS).await?;
    let schema = config.schema.as_ref().map_or("", |schema| schema.as_str());
    let question = state(schema, config.table.as_str());
    let asked = SystemTime::now();
    let state = ask(connection, &question).await?;
    let database = text(state.rows.first().and_then(|row| row.get(5)));
    if !database.is_empty() {
        target.reported_database.get_or_init(|| database);
    }
    let facts = PostgresFacts {
        mode: config.mode,
        is_in_recovery: state.int(0) == Some(1),
        standbys: state.int(1).unwrap_or(0),
        asynchronous: state.int(2).unwrap_or(0),
        is_unlogged: state.int(3) == Some(1),
        settings,
        clock_offset: state.int(4).and_then(|server| clock_offset(asked, server)),
    };
    target.reported_fencing.get_or_init(|| facts.fencing());
    Ok(HealthRule::check_all(RULES, &facts))
}

const SETTINGS: &str = "SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN (
    'synchronous_commit', 'fsync', 'full_page_writes', 'synchronous_standby_names')";

/// The log also has readers that are not standbys, each with a row. A subscriber names its database,
/// which a standby does not; a backup names its task, and backup programs have known names. A user
/// without access to all statistics sees databases and names, but no states.
///
/// The names are of letters, digits and underscores.
fn state(schema: &str, table: &str) -> String {
    format!(
        "SELECT pg_is_in_recovery()::int::bigint, followers.number, followers.asynchronous,
            (SELECT count(*) FROM pg_catalog.pg_class c
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = '{schema}' AND c.relname = '{table}' AND c.relpersistence = 'u'),
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, current_database()::text
        FROM (
            SELECT count(*) AS number,
                count(*) FILTER (WHERE r.sync_state IN ('async', 'potential')) AS asynchronous
            FROM pg_catalog.pg_stat_replication r
            LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = r.pid
            WHERE a.datid IS NULL AND r.state IS DISTINCT FROM 'backup'
                AND coalesce(r.application_name, '') NOT IN ('pg_basebackup', 'pg_receivewal')
        ) followers"
    )
}

/// What a server says about itself, as this connection sees it, and what is asked of it.
#[derive(Clone, Debug)]
struct PostgresFacts {
    mode: SqlMode,
    is_in_recovery: bool,
    /// How many servers follow it. Any client that reads its log like one of them counts as one.
    standbys: i64,
    /// Those that it does not wait for, as far as this user may know.
    asynchronous: i64,
    /// Whether a crash empties the table.
    is_unlogged: bool,
    settings: HashMap<String, String>,
    clock_offset: Option<Duration>,
}

impl PostgresFacts {
    fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.setting(name) == value
    }

    /// The disabled settings among those that protect data files from a crash.
    fn unsafe_writes(&self) -> Vec<String> {
        let names = ["fsync", "full_page_writes"].into_iter();
        let off = names.filter(|name| self.is(name, "off"));
        off.map(|name| format!("{name} is off")).collect()
    }

    /// How many standbys a commit waits for. A user without access to all statistics knows no more
    /// than this, and with `ANY` each standby may be the one that lacks a commit.
    fn waited_for(&self) -> i64 {
        match self.is("synchronous_commit", "local") {
            true => 0,
            false => waited_for(self.setting("synchronous_standby_names")),
        }
    }

    /// How many standbys may lack what is committed.
    fn behind(&self) -> i64 {
        self.asynchronous.max(self.standbys - self.waited_for())
    }

    /// How far tokens can be trusted after a crash or a failover.
    fn fencing(&self) -> Fencing {
        match self.is("synchronous_commit", "off") || self.behind() > 0 {
            true => Fencing::BestEffort,
            false => Fencing::Strong,
        }
    }
}

/// The number of standbys in `ANY n (names)`, `FIRST n (names)` or `n (names)`; a list of names
/// alone means the first.
fn waited_for(names: &str) -> i64 {
    if names.trim().is_empty() {
        return 0;
    }
    let before = names.split_once('(').map_or("", |(before, _)| before);
    let mut words = before.split_whitespace();
    words
        .next_back()
        .and_then(|number| number.parse().ok())
        .unwrap_or(1)
}

const RULES: &[HealthRule<PostgresFacts>] = &[
    HealthRule {
        id: REPLICA,
        rule: |facts| match facts.is_in_recovery {
            true => Status::Error.because("the server is a standby"),
            false => Status::Ok.because("the server is a primary"),
        },
        impact: "it takes no writes and knows no locks",
        fix: "name its primary",
    },
    HealthRule {
        id: "flush",
        rule: |facts| match facts.setting("synchronous_commit") {
            "off" => Status::Warning.because("synchronous_commit is off"),
            _ if !facts.unsafe_writes().is_empty() => None,
            commit => Status::Ok.because(format!(
                "synchronous_commit is {commit}, fsync and full_page_writes are on"
            )),
        },
        impact: "a crash of the server takes back the fencing tokens and the leases of its last \
                 moments",
        fix: "set it to on for this user",
    },
    HealthRule {
        id: "flush",
        rule: |facts| match &facts.unsafe_writes()[..] {
            [] => None,
            off => Status::Warning.because(off.join(", ")),
        },
        impact: "a crash of the machine can damage the table of locks, or take its last changes back",
        fix: "set it to on",
    },
    HealthRule {
        id: "replication",
        rule: |facts| match (facts.behind(), facts.standbys) {
            (behind, all) if behind > 0 => {
                Status::Warning.because(match (1..all).contains(&behind) {
                    true => format!("the server does not wait for {behind} of its {all} standbys"),
                    false => "the server has standbys and does not wait for them".to_owned(),
                })
            }
            (_, 0) => Status::Ok.because("the server has no standbys"),
            (_, 1) => Status::Ok.because("the server has 1 standby and waits for it"),
            (_, n) => Status::Ok.because(format!("the server waits for its {n} standbys")),
        },
        impact: "a failover loses the locks that have not reached the new primary",
        fix: "have synchronous_standby_names wait for all of them, or check fencing tokens where \
              the data are",
    },
    HealthRule {
        id: "table",
        rule: |facts| match facts.is_unlogged {
            true => Status::Warning.because("the table of locks is unlogged"),
            false => Status::Ok.because("no crash empties the table of locks"),
        },
        impact: "a crash of the server empties it: leases are granted twice",
        fix: "ALTER TABLE .. SET LOGGED",
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

    const GOOD: [(&str, &str); 3] = [
        ("synchronous_commit", "on"),
        ("fsync", "on"),
        ("full_page_writes", "on"),
    ];

    fn facts(changes: &[(&str, &str)], standbys: i64, asynchronous: i64) -> PostgresFacts {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        PostgresFacts {
            mode: SqlMode::Row,
            is_in_recovery: false,
            standbys,
            asynchronous,
            is_unlogged: false,
            settings: GOOD.iter().chain(changes).map(own).collect(),
            clock_offset: Some(Duration::ZERO),
        }
    }

    fn faults(facts: &PostgresFacts) -> Vec<HealthCheck> {
        let mut checks = HealthRule::check_all(RULES, facts);
        checks.retain(HealthCheck::is_fault);
        checks
    }

    #[test]
    fn each_fault_says_how_bad_it_is() {
        use Status::{Error, Warning};
        let set = |name, value| facts(&[(name, value)], 0, 0);
        let standby = PostgresFacts {
            is_in_recovery: true,
            ..facts(&[], 0, 0)
        };
        let unlogged = PostgresFacts {
            is_unlogged: true,
            ..facts(&[], 0, 0)
        };
        let late = PostgresFacts {
            mode: SqlMode::Lease,
            clock_offset: Some(Duration::from_secs(3)),
            ..facts(&[], 0, 0)
        };
        for (facts, id, status, says) in [
            (standby, "replica", Error, "standby"),
            (
                set("synchronous_commit", "off"),
                "flush",
                Warning,
                "fencing tokens",
            ),
            (set("fsync", "off"), "flush", Warning, "fsync is off"),
            (set("full_page_writes", "off"), "flush", Warning, "damage"),
            (unlogged, "table", Warning, "SET LOGGED"),
            (
                facts(&[], 2, 0),
                "replication",
                Warning,
                "not wait for them",
            ),
            (late, "clock", Warning, "by 3 s"),
        ] {
            let found = faults(&facts);
            let [fault] = &found[..] else {
                panic!("one fault of {id}: {found:?}");
            };
            assert_eq!((fault.id, fault.status), (id, status), "{fault}");
            assert!(fault.to_string().contains(says), "{fault}");
        }
    }

    #[test]
    fn standbys_are_to_be_waited_for() {
        let named = ("synchronous_standby_names", "s1");
        let any = ("synchronous_standby_names", "ANY 1 (a, b)");
        let both = ("synchronous_standby_names", "ANY 2 (a, b)");
        let local = ("synchronous_commit", "local");
        let remote = ("synchronous_commit", "remote_write");
        for (changes, standbys, asynchronous, says) in [
            (&[][..], 0, 0, None),
            (&[], 1, 0, Some("does not wait for them")),
            (&[named], 1, 0, None),
            (&[named, local], 1, 0, Some("does not wait for them")),
            (&[named, remote], 1, 0, None),
            (&[named], 2, 1, Some("1 of its 2 standbys")),
            // A user without access to all statistics sees none that is asynchronous.
            (&[named], 2, 0, Some("1 of its 2 standbys")),
            (&[any], 2, 0, Some("1 of its 2 standbys")),
            (&[both], 2, 0, None),
            (&[both], 3, 0, Some("1 of its 3 standbys")),
        ] {
            let facts = facts(changes, standbys, asynchronous);
            let found = faults(&facts);
            let expected = match says {
                Some(says) => {
                    assert!(found[0].summary.contains(says), "{found:?}");
                    (1, Fencing::BestEffort)
                }
                None => (0, Fencing::Strong),
            };
            assert_eq!((found.len(), facts.fencing()), expected, "{changes:?}");
        }
    }
}
