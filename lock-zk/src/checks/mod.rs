//! Checks of an ensemble before it keeps locks.
//!
//! The names of the checks are `version`, `ensemble`, `session-timeout` and `access`, which are made
//! at every start; and `quorum`, `root`, `rights` and `clock`.

mod besides;
mod ensemble;
mod scratch;

use std::time::Duration;

use lock_core::HealthCheck;
use lock_core::engine::{Engine, before};
use tokio::time::Instant;
use zookeeper_client::Client;

use crate::config::ZooKeeperConfig;
use crate::error::{Cause, Failure};
use crate::session::connect::visit;

use self::besides::Visit;
use self::ensemble::{ask, health_checks};

/// Looks at an ensemble, and warns of what it finds; with strict checks, refuses.
///
/// What the ensemble does not tell this client is left out.
pub(crate) async fn check(client: &Client, config: &ZooKeeperConfig) -> Result<(), Failure> {
    let mut found = health_checks(&ask(client, config).await?);
    found.retain(HealthCheck::is_fault);
    if config.strict && !found.is_empty() {
        let found: Vec<_> = found.iter().map(HealthCheck::to_string).collect();
        let message = format!("strict=on refuses this ensemble: {}", found.join(". "));
        return Err(Cause::Config(message).into());
    }
    for check in found {
        let HealthCheck {
            summary,
            impact,
            fix,
            ..
        } = check;
        tracing::warn!(%summary, %impact, %fix, "an ensemble may lose locks");
    }
    Ok(())
}

/// Looks at an ensemble in a session of its own, and tries out what locks need: what each check
/// shows.
pub(crate) async fn look(
    config: &ZooKeeperConfig,
    engine: &Engine,
) -> Result<Vec<HealthCheck>, Failure> {
    let (client, answers) = visit(config, engine).await?;
    let looking = async {
        let facts = ask(&client, config).await?;
        let visit = Visit {
            answers,
            granted: facts.granted,
            root: config.root.clone(),
            scratch: scratch::tried(&client, config, engine).await?,
        };
        Ok((facts, visit))
    };
    let within = config.timeout.max(LONG_ENOUGH);
    let looked = before(Instant::now() + within, looking).await;
    let (facts, visit) = looked.unwrap_or_else(|| Err(Failure::silent(within)))?;
    Ok(besides::added(health_checks(&facts), &visit))
}

/// For a dozen requests.
const LONG_ENOUGH: Duration = Duration::from_secs(5);
