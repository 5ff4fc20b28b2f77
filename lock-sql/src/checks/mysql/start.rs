//! What is looked at on MySQL and MariaDB before they get locks to keep.

use lock_core::{Fencing, HealthCheck};

use super::facts::{Facts, flavor};
use crate::checks::clock::clock;
use crate::checks::found::{Found, faults_or};
use crate::config::SqlMode;
use crate::wire::Flavor;

/// `trusts_clock` says whether locks end by the clock of the server.
pub(super) fn health_checks(facts: &Facts, mode: SqlMode, trusts_clock: bool) -> Vec<Found> {
    let mut found = vec![
        version(&facts.version).into(),
        writes(facts),
        several_writers(facts, mode).into(),
    ];
    found.extend(flush(facts));
    found.push(clock(facts.clock_offset, trusts_clock).into());
    found
}

fn version(text: &str) -> HealthCheck {
    let (name, oldest, fix) = match flavor(text) {
        Flavor::MariaDb => ("MariaDB", (10, 3), "use MariaDB 10.6 or later"),
        Flavor::MySql => ("MySQL", (8, 0), "use MySQL 8.0 or later"),
    };
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|n| n.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (number(), number()) else {
        let what = format!("the server says that its version is {text:?}");
        return HealthCheck::not_checked("version", what);
    };
    let what = format!("the server is {name} {major}.{minor}");
    match (major, minor) < oldest {
        true => {
            let impact = "it cannot say at once that a row is locked";
            HealthCheck::error("version", what, impact, fix)
        }
        false => HealthCheck::ok("version", what),
    }
}

fn writes(facts: &Facts) -> Found {
    let find = |what: &'static str| {
        let impact = "it takes no writes, and may be a replica";
        Found::passing(HealthCheck::error(
            "replica",
            what,
            impact,
            "name its source",
        ))
    };
    if facts.is_on("innodb_read_only") {
        return find("innodb_read_only is on");
    }
    if facts.is_on("super_read_only") {
        return find("super_read_only is on");
    }
    // MariaDB 12 has words for what else it can be.
    let is_off = facts.is("read_only", "OFF") || facts.is("read_only", "0");
    if is_off || !facts.variables.contains_key("read_only") {
        return HealthCheck::ok("replica", "the server takes writes").into();
    }
    if facts.may_write_anyway {
        let health = HealthCheck::warning(
            "replica",
            "read_only is on, and this user may write all the same",
            "the server may be a replica, whose locks exclude nobody on its source",
            "name its source",
        );
        return health.into();
    }
    find("read_only is on")
}

/// Servers of which several take writes, each with row locks and named locks of its own.
fn several_writers(facts: &Facts, mode: SqlMode) -> HealthCheck {
    let what = if facts.is_on("wsrep_on") {
        "the server is a node of a Galera cluster"
    } else if facts.is("group_replication_single_primary_mode", "OFF")
        && facts.variables.get("group_replication_group_name") != Some(&String::new())
    {
        "the server is one of several primaries of a replication group"
    } else {
        return HealthCheck::ok("galera", "no other server takes writes to its tables");
    };
    match mode {
        SqlMode::Lease => HealthCheck::ok("galera", format!("{what}, and leases go by its rows")),
        SqlMode::Advisory | SqlMode::Row => {
            let impact = "other nodes do not see its row locks and named locks";
            HealthCheck::error("galera", what, impact, "use mode=lease")
        }
    }
}

fn flush(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    let name = "innodb_flush_log_at_trx_commit";
    if let Some(value) = facts.number(name).filter(|value| *value != 1) {
        let health = HealthCheck::warning(
            "flush",
            format!("{name} is {value}"),
            "a crash takes back the fencing tokens and the leases of the last second",
            "set it to 1",
        );
        found.push(health.into());
    }
    if facts.is_on("log_bin")
        && let Some(value) = facts.number("sync_binlog").filter(|value| *value != 1)
    {
        let health = HealthCheck::warning(
            "flush",
            format!("sync_binlog is {value}"),
            "a crash of the machine can take committed locks from its replicas",
            "set it to 1",
        );
        found.push(health.into());
    }
    faults_or(found, || match facts.variables.contains_key(name) {
        true => HealthCheck::ok("flush", "what is committed is on the disk"),
        false => HealthCheck::not_checked("flush", format!("the server does not tell {name}")),
    })
}

/// How far tokens can be trusted after a crash of the server.
pub(super) fn fencing(facts: &Facts) -> Fencing {
    match facts.number("innodb_flush_log_at_trx_commit") {
        // Without a word about it, it is as MySQL has it.
        Some(1) | None => Fencing::Strong,
        Some(_) => Fencing::BestEffort,
    }
}
