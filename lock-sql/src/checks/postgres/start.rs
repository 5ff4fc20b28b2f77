//! What is looked at on PostgreSQL before it gets locks to keep.

use std::time::Duration;

use lock_core::{Fencing, HealthCheck};

use super::facts::{Facts, Wanted};
use crate::checks::clock::clock;
use crate::checks::found::{Found, faults_or};
use crate::config::SqlMode;

pub(super) fn health_checks(facts: &Facts, wanted: &Wanted) -> Vec<Found> {
    let mut found = vec![version(facts).into(), writes(facts)];
    found.extend(flush(facts));
    found.push(replication(facts).into());
    found.extend(time_limits(facts, wanted));
    found.push(clock(facts.clock_offset, wanted.trusts_clock).into());
    found
}

fn version(facts: &Facts) -> HealthCheck {
    let what = format!(
        "the server is PostgreSQL {}",
        facts.setting("server_version")
    );
    let fix = "use PostgreSQL 14 or later";
    match facts.version() {
        ..OLDEST => HealthCheck::error(
            "version",
            what,
            "it is older than anything that this library is written for",
            fix,
        ),
        OLDEST..WATCHFUL => HealthCheck::warning(
            "version",
            what,
            "it does not look after clients that vanish while they wait, and what they hold or wait \
             for stays until TCP gives up",
            fix,
        ),
        _ => HealthCheck::ok("version", what),
    }
}

/// The first version with procedures and with the hashes of passwords that this client knows.
const OLDEST: u32 = 110_000;

/// The first with `client_connection_check_interval` and `idle_session_timeout`.
const WATCHFUL: u32 = 140_000;

fn writes(facts: &Facts) -> Found {
    if facts.is_in_recovery {
        return Found::passing(HealthCheck::error(
            "replica",
            "the server is a standby",
            "it takes no writes and knows no locks",
            "name its primary",
        ));
    }
    let health = match facts.is("transaction_read_only", "on") {
        true => HealthCheck::error(
            "replica",
            "transactions are read-only",
            "no lock can be taken",
            "set default_transaction_read_only to off for this user",
        ),
        false => HealthCheck::ok("replica", "the server is a primary and takes writes"),
    };
    health.into()
}

fn flush(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    if facts.is("synchronous_commit", "off") {
        let health = HealthCheck::warning(
            "flush",
            "synchronous_commit is off",
            "a crash of the server takes back the fencing tokens and the leases of its last moments",
            "set it to on for this user",
        );
        found.push(health.into());
    }
    for name in ["fsync", "full_page_writes"] {
        if facts.is(name, "off") {
            let health = HealthCheck::warning(
                "flush",
                format!("{name} is off"),
                "a crash of the machine can damage the table of locks, or take its last changes back",
                "set it to on",
            );
            found.push(health.into());
        }
    }
    faults_or(found, || {
        let commit = facts.setting("synchronous_commit");
        let what = format!("synchronous_commit is {commit}, fsync and full_page_writes are on");
        HealthCheck::ok("flush", what)
    })
}

fn replication(facts: &Facts) -> HealthCheck {
    let standbys = facts.standbys;
    if some_are_behind(facts) {
        let what = match facts.asynchronous {
            n if 0 < n && n < standbys => {
                format!("the server does not wait for {n} of its {standbys} standbys")
            }
            _ => "the server has standbys and does not wait for them".to_owned(),
        };
        return HealthCheck::warning(
            "replication",
            what,
            "a fail-over loses the locks that have not reached the new primary",
            "set synchronous_standby_names, or check fencing tokens where the data are",
        );
    }
    match standbys {
        0 => HealthCheck::ok("replication", "the server has no standbys"),
        1 => HealthCheck::ok("replication", "the server has 1 standby and waits for it"),
        n => HealthCheck::ok(
            "replication",
            format!("the server waits for its {n} standbys"),
        ),
    }
}

/// Whether there are standbys that may lack what is committed.
fn some_are_behind(facts: &Facts) -> bool {
    let is_named = !facts.setting("synchronous_standby_names").is_empty();
    let waits = is_named && !facts.is("synchronous_commit", "local");
    facts.asynchronous > 0 || (facts.standbys > 0 && !waits)
}

/// How far tokens can be trusted after a crash or a fail-over.
pub(super) fn fencing(facts: &Facts) -> Fencing {
    match facts.is("synchronous_commit", "off") || some_are_behind(facts) {
        true => Fencing::BestEffort,
        false => Fencing::Strong,
    }
}

/// Time-outs of the server that end what this client needs for longer.
fn time_limits(facts: &Facts, wanted: &Wanted) -> Vec<Found> {
    let mut found = Vec::new();
    let mut limit = |name: &str, needed: Duration, impact, fix| {
        if let Some(limit) = facts.limit(name).filter(|limit| *limit < needed) {
            let what = format!("{name} is {limit:?}");
            found.push(HealthCheck::warning("time-limits", what, impact, fix).into());
        }
    };
    let statement =
        "statements fail that would be done in the time that the configuration gives them";
    let fix = "lift it for this user, or write a shorter timeout";
    limit("statement_timeout", wanted.timeout, statement, fix);
    limit("lock_timeout", wanted.timeout, statement, fix);
    // Sessions of locks lift the other ones for themselves.
    if wanted.mode == SqlMode::Row {
        let ends = "the server ends the session of a lock while it is held";
        let fix = "lift it for this user, or use mode=lease";
        limit("transaction_timeout", Duration::MAX, ends, fix);
    }
    faults_or(found, || {
        HealthCheck::ok(
            "time-limits",
            "no time-out of the server ends a statement too early",
        )
    })
}
