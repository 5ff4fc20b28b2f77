//! The checks of one server: a table over what it says about itself.

use std::borrow::Cow;
use std::time::Duration;

use polylock_core::{HealthRule, RuleOutcome, Status};

use super::facts::ServerFacts;
use crate::config::{RedisConfig, Servers};

/// Judges what a server says about itself, by the configuration.
pub(super) const RULES: &[HealthRule<(ServerFacts, RedisConfig)>] = &[
    HealthRule {
        id: "replica",
        rule: |(facts, _)| match facts.role.as_deref() {
            None => not_told(INFO),
            Some("master") => ok("the server is a master"),
            Some(_) => error("the server is a replica"),
        },
        impact: "it takes no writes",
        fix: "name its master, or the Sentinels that know it",
    },
    HealthRule {
        id: "eviction",
        rule: |(facts, _)| match (facts.maxmemory, &facts.policy) {
            (Some(0), _) => ok("there is no maxmemory, and nothing is evicted"),
            (Some(_), Some(policy)) if policy == "noeviction" => {
                ok("maxmemory-policy is noeviction")
            }
            (Some(_), Some(policy)) => warning(format!("maxmemory-policy is {policy}")),
            _ => not_told(INFO),
        },
        impact: "a lock may be evicted while it is held",
        fix: "set maxmemory-policy to noeviction, or give locks a server of their own",
    },
    HealthRule {
        id: "persistence",
        rule: |(facts, _)| match (facts.has_aof, facts.has_snapshots) {
            (None, _) => not_told(INFO),
            (Some(true), _) => ok("the server has an append-only file"),
            (_, Some(false)) => warning("the server persists nothing"),
            (_, Some(true)) => warning("the server persists snapshots only"),
            (_, None) => warning("the server has no append-only file"),
        },
        impact: "a restart frees locks while they are held: all, or those since the last snapshot",
        fix: APPEND,
    },
    HealthRule {
        id: "flush",
        rule: |(facts, _)| match facts.fsync.as_deref() {
            _ if facts.has_aof != Some(true) => None,
            None => not_told(CONFIG),
            Some("no") => warning("appendfsync is no"),
            Some(_) if facts.skips_fsync == Some(true) => None,
            Some("everysec") => {
                ok("appendfsync is everysec; a crash of the machine may lose the last second")
            }
            Some(fsync) => ok(format!("appendfsync is {fsync}")),
        },
        impact: "a crash of the machine frees the locks of the last half minute",
        fix: APPEND,
    },
    HealthRule {
        id: "flush",
        rule: |(facts, _)| match (facts.fsync.as_deref()?, facts.skips_fsync) {
            (fsync, Some(true)) if facts.has_aof == Some(true) && fsync != "no" => {
                warning("no-appendfsync-on-rewrite is yes")
            }
            _ => None,
        },
        impact: "nothing is flushed during a snapshot or a rewrite, and a crash of the machine \
                 then frees the locks of the last half minute",
        fix: "set no-appendfsync-on-rewrite to no",
    },
    HealthRule {
        id: "replication",
        rule: |(facts, config)| match (facts.replicas, config.replica_acks) {
            (Some(replicas), acks) if acks > replicas => error(format!(
                "min-replica-acks is {acks} and the master has {replicas} replicas"
            )),
            _ => None,
        },
        impact: "nothing can be acquired",
        fix: "connect more replicas, or require fewer",
    },
    HealthRule {
        id: "replication",
        rule: |(facts, config)| unwaited(facts, config).filter(|_| !is_quorum(config)),
        impact: FAILOVER,
        fix: "set min-replica-acks=1, and min-replicas-to-write on the server",
    },
    HealthRule {
        id: "replication",
        rule: |(facts, config)| unwaited(facts, config).filter(|_| is_quorum(config)),
        impact: FAILOVER,
        fix: "promote no replica of a quorum: the other masters stand in for one that fails",
    },
    HealthRule {
        id: "replication",
        rule: |(facts, config)| {
            let (acks, replicas) = (config.replica_acks, facts.replicas);
            let waits = |n| format!("a grant waits for {acks} of {n} replicas");
            match (replicas, facts.min_replicas, facts.max_lag) {
                (None, ..) => not_told(INFO),
                (Some(0), ..) if acks == 0 => ok("the master has no replicas"),
                (Some(n), ..) if acks == 0 || acks > n => None,
                (Some(n), Some(0), Some(_)) | (Some(n), Some(_), Some(0)) => {
                    warning(format!("{}, and the master takes writes with 0", waits(n)))
                }
                (Some(n), Some(min), Some(_)) if min < acks => warning(format!(
                    "{}, and the master takes writes with {min}",
                    waits(n)
                )),
                (Some(n), Some(_), Some(lag)) if lag > MAX_LAG => {
                    warning(format!("{}, and min-replicas-max-lag is {lag} s", waits(n)))
                }
                (Some(n), Some(min), Some(lag)) => ok(format!(
                    "{}, and the master takes no writes without {min} that reply every {lag} s",
                    waits(n)
                )),
                (Some(n), ..) => Some((
                    Status::NotChecked,
                    format!("{}; min-replicas-to-write is not known", waits(n)).into(),
                )),
            }
        },
        impact: "a master that is cut off goes on to grant locks to clients that wait for no replica",
        fix: "set min-replicas-to-write to min-replica-acks or more, and min-replicas-max-lag to 10 or \
              less, on all servers",
    },
    HealthRule {
        id: "clock",
        rule: |(facts, _)| match facts.clock {
            None => not_told("TIME"),
            Some(offset) if offset.least > MAX_OFFSET => warning(format!(
                "the clock of the server differs by {} s",
                offset.least.as_secs()
            )),
            Some(offset) => ok(format!(
                "the clock of the server agrees with this one to within {} ms",
                offset.most.as_millis() + 1
            )),
        },
        impact: "a clock that jumps ends leases early, or late",
        fix: "run a time service that slews clocks on both machines",
    },
];

fn is_quorum(config: &RedisConfig) -> bool {
    matches!(config.servers, Servers::Quorum(_))
}

fn unwaited(facts: &ServerFacts, config: &RedisConfig) -> RuleOutcome {
    let has_replicas = facts.replicas.is_some_and(|replicas| replicas > 0);
    (has_replicas && config.replica_acks == 0).then_some((
        Status::Warning,
        "the master has replicas and does not wait for them".into(),
    ))
}

fn ok(summary: impl Into<Cow<'static, str>>) -> RuleOutcome {
    Status::Ok.because(summary)
}

fn warning(summary: impl Into<Cow<'static, str>>) -> RuleOutcome {
    Status::Warning.because(summary)
}

fn error(summary: impl Into<Cow<'static, str>>) -> RuleOutcome {
    Status::Error.because(summary)
}

fn not_told(command: &str) -> RuleOutcome {
    let summary = format!("this user may not run {command}, or the server lacks it");
    Status::NotChecked.because(summary)
}

const INFO: &str = "INFO";
const CONFIG: &str = "CONFIG GET";
const APPEND: &str = "set appendonly to yes and appendfsync to everysec, or to always if no crash \
                      may lose a lock";
const FAILOVER: &str = "a failover loses the locks that have not reached the new master";

/// In seconds, the default of Redis.
const MAX_LAG: u64 = 10;
const MAX_OFFSET: Duration = Duration::from_secs(1);
