//! Checks of a server before it keeps locks.
//!
//! Every start checks `version`, `replica`, `cluster`, `eviction`, `persistence`, `flush`,
//! `replication` and `clock`. The doctor adds `memory`, `rights` and `push`, and of a quorum `quorum`,
//! `nodes`, `same-server`, `same-host` and `rejoin`.

mod facts;
mod merged;
mod permissions;
mod server;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use lock_core::HealthCheck;

use crate::config::RedisConfig;
use crate::error::{Cause, Failure};
use crate::topology::Topology;

use self::facts::{DEEP, STARTUP, ask};
use self::server::{Wanted, deep_checks, startup_checks};

pub(crate) use self::facts::Facts;
pub(crate) use self::merged::merged;

/// Checks every master and warns of faults; with strict checks, refuses.
///
/// What the server does not tell this user is left out.
pub(crate) async fn check(topology: &dyn Topology, config: &RedisConfig) -> Result<(), Failure> {
    let mut found: Vec<HealthCheck> = Vec::new();
    for facts in ask(topology, STARTUP).await? {
        for health in startup_checks(&facts, &Wanted::of(config)) {
            if health.is_fault() && !found.contains(&health) {
                found.push(health);
            }
        }
    }
    if config.strict && !found.is_empty() {
        let found: Vec<_> = found.iter().map(HealthCheck::to_string).collect();
        let message = format!("strict=on refuses this server: {}", found.join(". "));
        return Err(Cause::Config(message).into());
    }
    for check in found {
        let HealthCheck {
            summary,
            impact,
            fix,
            ..
        } = check;
        tracing::warn!(%summary, %impact, %fix, "a server may lose locks");
    }
    Ok(())
}

/// Checks every master: the facts of each, and the result of each check.
pub(crate) async fn look(
    topology: &dyn Topology,
    config: &RedisConfig,
) -> Result<(Vec<Facts>, Vec<HealthCheck>), Failure> {
    let wanted = Wanted::of(config);
    let mut servers = ask(topology, DEEP).await?;
    if servers.is_empty() {
        servers.push(Facts::default());
    }
    let of_one = |facts: &Facts| {
        let mut found = startup_checks(facts, &wanted);
        found.extend(deep_checks(facts, &wanted));
        (Arc::clone(&facts.server), found)
    };
    let mut found = merged(servers.iter().map(of_one).collect());
    if wanted.cluster {
        let layout = slots::ask(topology).await?;
        found.extend(layout.as_ref().and_then(slots::missing));
    }
    found.extend(permissions::checks(topology, config).await?);
    Ok((servers, found))
}
