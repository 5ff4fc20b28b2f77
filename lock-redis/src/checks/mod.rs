//! Checks of a server before it stores locks: at every start, and for the health report.

mod facts;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use polylock_core::{ErrorKind, HealthCheck, HealthRule};

use crate::config::{RedisConfig, Servers};
use crate::error::{RedisCause, RedisFailure};
use crate::topology::Topology;

use self::facts::{Asked, ask};
use self::server::RULES;

pub(crate) use self::facts::ServerFacts;

/// Checks every master and warns of faults; with strict checks, refuses servers with faults. Masters of a
/// cluster that cannot be reached are not checked: the others have locks of their own.
pub(crate) async fn check(
    topology: &dyn Topology,
    config: &RedisConfig,
) -> Result<(), RedisFailure> {
    let Asked { servers, missing } = ask(topology).await?;
    let checks = judge(&servers, config)?;
    for failure in missing {
        tracing::warn!(
            reason = %failure.cause,
            "a master of the cluster cannot be reached, and is not checked"
        );
    }
    let outcome = HealthCheck::report(&checks, config.strict);
    outcome.map_err(|refusal| RedisCause::Config(refusal).into())
}

/// Checks every master: the facts of each, and the result of each check.
pub(crate) async fn look(
    topology: &dyn Topology,
    config: &RedisConfig,
) -> Result<(Vec<ServerFacts>, Vec<HealthCheck>), RedisFailure> {
    let Asked { servers, missing } = ask(topology).await?;
    let mut checks = judge(&servers, config)?;
    if !missing.is_empty() {
        let causes = missing.iter().map(|failure| failure.cause.to_string());
        let (count, all) = (missing.len(), missing.len() + servers.len());
        let causes = causes.collect::<Vec<_>>().join("; ");
        checks.push(HealthCheck::error(
            "nodes",
            format!("{count} of {all} masters do not answer: {causes}"),
            "the locks in their slots are unavailable, and locks cannot be listed",
            "bring them back, or promote a replica of each",
        ));
    }
    Ok((servers, checks))
}

fn judge(servers: &[ServerFacts], config: &RedisConfig) -> Result<Vec<HealthCheck>, RedisFailure> {
    if let Some(cause) = servers.iter().find_map(|facts| wrong_mode(facts, config)) {
        return Err(cause.into());
    }
    let of_one = |facts: &ServerFacts| {
        let checks = HealthRule::check_all(RULES, &(facts.clone(), config.clone()));
        (Arc::clone(&facts.server), checks)
    };
    Ok(merged(servers.iter().map(of_one).collect()))
}

/// Refuses a Sentinel or a node of a cluster in the place of a single server. A node of a cluster would grant
/// locks, and refuse to release them, or to renew several at once.
fn wrong_mode(facts: &ServerFacts, config: &RedisConfig) -> Option<RedisCause> {
    let mode = facts.mode.as_deref()?;
    let what = match (&config.servers, mode) {
        (Servers::Standalone(_), "cluster") => "a node of a cluster: use redis-cluster://",
        (Servers::Standalone(_), "sentinel") => "a Sentinel: use redis-sentinel://HOST/MASTER",
        (Servers::Quorum(_), "cluster") => {
            "a node of a cluster: the masters of a quorum are single servers"
        }
        (Servers::Quorum(_), "sentinel") => {
            "a Sentinel: the masters of a quorum are single servers"
        }
        _ => return None,
    };
    Some(RedisCause::Stranger {
        server: Arc::clone(&facts.server),
        what: what.to_owned(),
        kind: ErrorKind::InvalidConfig,
    })
}

/// Merges the health checks of all servers. Each is listed once if all servers agree, and otherwise with
/// the names of the servers that it applies to.
pub(crate) fn merged(servers: Vec<(Arc<str>, Vec<HealthCheck>)>) -> Vec<HealthCheck> {
    let count = servers.len();
    let mut found: Vec<(HealthCheck, Vec<Arc<str>>)> = Vec::new();
    for (server, health_checks) in servers {
        for health in health_checks {
            match found.iter_mut().find(|(known, _)| *known == health) {
                Some((_, of)) => of.push(Arc::clone(&server)),
                None => found.push((health, vec![Arc::clone(&server)])),
            }
        }
    }
    // Groups the results of one check.
    found.sort_by_key(|(health, _)| RULES.iter().position(|rule| rule.id == health.id));
    let named = found.into_iter().map(|(mut health, of)| {
        if of.len() < count {
            health.summary = format!("{}: {}", of.join(", "), health.summary).into();
        }
        health
    });
    named.collect()
}
