//! Checks of a server before it stores locks: at every start, and for the health report.

mod facts;
mod merged;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use polylock_core::{HealthCheck, HealthRule};

use crate::config::RedisConfig;
use crate::error::{Cause, Failure};
use crate::topology::Topology;

use self::facts::ask;
use self::server::{RULES, Wanted};

pub(crate) use self::facts::Facts;
pub(crate) use self::merged::merged;

/// Checks every master and warns of faults; with strict checks, refuses servers with faults.
pub(crate) async fn check(topology: &dyn Topology, config: &RedisConfig) -> Result<(), Failure> {
    let (_, checks) = look(topology, config).await?;
    let outcome = HealthCheck::report(&checks, config.strict);
    outcome.map_err(|refusal| Cause::Config(refusal).into())
}

/// Checks every master: the facts of each, and the result of each check.
pub(crate) async fn look(
    topology: &dyn Topology,
    config: &RedisConfig,
) -> Result<(Vec<Facts>, Vec<HealthCheck>), Failure> {
    let mut servers = ask(topology).await?;
    if servers.is_empty() {
        servers.push(Facts::default());
    }
    let of_one = |facts: &Facts| {
        let input = (facts.clone(), Wanted::of(config));
        let checks = HealthRule::check_all(RULES, &input);
        (Arc::clone(&facts.server), checks)
    };
    let checks = merged(servers.iter().map(of_one).collect());
    Ok((servers, checks))
}
