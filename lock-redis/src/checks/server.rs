//! What one server is like: the checks of every start.

use std::time::Duration;

use lock_core::Finding;

use super::facts::Facts;
use crate::config::{RedisConfig, Servers};

/// What the configuration says of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) cluster: bool,
    pub(super) quorum: bool,
    pub(super) replica_acks: u32,
}

impl Wanted {
    pub(super) fn of(config: &RedisConfig) -> Self {
        Self {
            cluster: matches!(config.servers, Servers::Cluster(_)),
            quorum: matches!(config.servers, Servers::Quorum(_)),
            replica_acks: config.replica_acks,
        }
    }
}

/// What each check shows; one that does not apply is left out.
pub(super) fn findings(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let checks = [
        Some(version(facts)),
        Some(replica(facts)),
        Some(cluster(facts, wanted)),
        Some(eviction(facts)),
        Some(persistence(facts)),
        flush(facts),
        Some(replication(facts, wanted)),
        Some(clock(facts)),
    ];
    checks.into_iter().flatten().collect()
}

fn version(facts: &Facts) -> Finding {
    let Some((major, minor)) = facts.version else {
        return untold("version", INFO);
    };
    if (major, minor) < OLDEST {
        return Finding::warning(
            "version",
            format!("the server is Redis {major}.{minor}"),
            "it is older than anything that this library is tested with",
            "use Redis 6.0 or later",
        );
    }
    let what = match &facts.valkey {
        Some(version) => format!("the server is Valkey {version}"),
        None => format!("the server is Redis {major}.{minor}"),
    };
    Finding::good("version", what)
}

fn replica(facts: &Facts) -> Finding {
    match facts.role.as_deref() {
        None => untold("replica", INFO),
        Some("master") => Finding::good("replica", "the server is a master"),
        Some(_) => Finding::error(
            "replica",
            "the server is a replica",
            "it takes no writes",
            "name its master, or the Sentinels that know it",
        ),
    }
}

fn cluster(facts: &Facts, wanted: &Wanted) -> Finding {
    match facts.is_cluster {
        None => untold("cluster", INFO),
        Some(true) if !wanted.cluster => Finding::error(
            "cluster",
            "the server is a node of a cluster",
            "it refuses the keys of other nodes",
            "use redis-cluster://",
        ),
        Some(true) => Finding::good("cluster", "the server is a node of a cluster"),
        Some(false) => Finding::good("cluster", "the server is no node of a cluster"),
    }
}

fn eviction(facts: &Facts) -> Finding {
    match (facts.maxmemory, &facts.policy) {
        (Some(0), _) => Finding::good("eviction", "there is no maxmemory, and nothing is evicted"),
        (Some(_), Some(policy)) if policy == "noeviction" => {
            Finding::good("eviction", "maxmemory-policy is noeviction")
        }
        (Some(_), Some(policy)) => Finding::warning(
            "eviction",
            format!("maxmemory-policy is {policy}"),
            "a lock may be evicted while it is held",
            "set maxmemory-policy to noeviction, or give locks a server of their own",
        ),
        _ => untold("eviction", INFO),
    }
}

fn persistence(facts: &Facts) -> Finding {
    let (what, why) = match (facts.has_aof, facts.has_snapshots) {
        (None, _) => return untold("persistence", INFO),
        (Some(true), _) => {
            return Finding::good("persistence", "the server has an append-only file");
        }
        (Some(false), Some(false)) => (
            "the server persists nothing",
            "a restart frees all locks while they are held",
        ),
        (Some(false), Some(true)) => (
            "the server persists snapshots only",
            "a restart frees the locks since the last one while they are held",
        ),
        (Some(false), None) => (
            "the server has no append-only file",
            "a restart frees locks while they are held",
        ),
    };
    Finding::warning("persistence", what, why, APPEND)
}

/// When the append-only file reaches the disk, if there is one.
fn flush(facts: &Facts) -> Option<Finding> {
    (facts.has_aof == Some(true)).then_some(())?;
    Some(match facts.fsync.as_deref() {
        None => untold("flush", CONFIG),
        Some("no") => Finding::warning(
            "flush",
            "appendfsync is no",
            "a crash of the machine frees the locks of the last half minute",
            APPEND,
        ),
        Some("everysec") => Finding::good(
            "flush",
            "appendfsync is everysec; a crash of the machine may cost the locks of the last second",
        ),
        Some(fsync) => Finding::good("flush", format!("appendfsync is {fsync}")),
    })
}

const APPEND: &str = "set appendonly to yes and appendfsync to everysec, or to always if no crash \
                      may cost a lock";

fn replication(facts: &Facts, wanted: &Wanted) -> Finding {
    let acks = wanted.replica_acks;
    let Some(replicas) = facts.replicas else {
        return untold("replication", INFO);
    };
    if acks > replicas {
        return Finding::error(
            "replication",
            format!("min-replica-acks is {acks} and the master has {replicas} replicas"),
            "nothing can be acquired",
            "connect more replicas or ask for fewer",
        );
    }
    if replicas > 0 && acks == 0 {
        return Finding::warning(
            "replication",
            "the master has replicas and does not wait for them",
            "a fail-over loses the locks that have not reached the new master",
            if wanted.quorum {
                "promote no replica of a quorum: the other masters stand in for one that fails"
            } else {
                "set min-replica-acks=1, and min-replicas-to-write on the server"
            },
        );
    }
    if replicas == 0 {
        return Finding::good("replication", "the master has no replicas");
    }
    let what = format!("a grant waits for {acks} of {replicas} replicas");
    let (Some(least), Some(lag)) = (facts.least_replicas, facts.max_lag) else {
        let what = format!("{what}, and the server does not tell its min-replicas-to-write");
        return Finding::unknown("replication", what);
    };
    // Either of them switches both off.
    let (least, lag) = if least == 0 || lag == 0 {
        (0, 0)
    } else {
        (least, lag)
    };
    if least < acks {
        return Finding::warning(
            "replication",
            format!("{what}, and the master takes writes with {least}"),
            "a master that is cut off goes on to grant locks to clients that wait for no replica",
            format!(
                "set min-replicas-to-write to {acks} or more on all servers, and \
                 min-replicas-max-lag to {MAX_LAG} or less"
            ),
        );
    }
    if lag > MAX_LAG {
        return Finding::warning(
            "replication",
            format!("{what}, and min-replicas-max-lag is {lag} s"),
            "a master that is cut off goes on for so long to grant locks to clients that wait for \
             no replica",
            format!("set min-replicas-max-lag to {MAX_LAG} or less on all servers"),
        );
    }
    Finding::good(
        "replication",
        format!("{what}, and the master takes no writes without {least} that answer every {lag} s"),
    )
}

/// What Redis has by default for replicas that have to answer, in seconds.
const MAX_LAG: u64 = 10;

fn clock(facts: &Facts) -> Finding {
    let Some(offset) = facts.clock else {
        return untold("clock", "TIME");
    };
    if offset.least > MAX_OFFSET {
        return Finding::warning(
            "clock",
            format!(
                "the clock of the server differs by {} s",
                offset.least.as_secs()
            ),
            "a clock that is set by a jump ends leases early, or makes them stay",
            "run a time service that slews clocks on both machines",
        );
    }
    let within = offset.most.as_millis() + 1;
    let what = format!("the clock of the server agrees with this one to within {within} ms");
    Finding::good("clock", what)
}

pub(super) fn untold(check: &'static str, command: &str) -> Finding {
    let what = format!("the server does not tell: this user may not run {command}, or it lacks it");
    Finding::unknown(check, what)
}

pub(super) const INFO: &str = "INFO";
pub(super) const CONFIG: &str = "CONFIG GET";

/// The first version with RESP3 and access rules.
const OLDEST: (u32, u32) = (6, 0);

const MAX_OFFSET: Duration = Duration::from_secs(1);
