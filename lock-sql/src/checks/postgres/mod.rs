//! What is looked at on PostgreSQL.

mod facts;
mod start;
mod table;
#[cfg(test)]
mod tests;

use lock_core::HealthCheck;

use self::facts::{Facts, Wanted};
use super::found::Found;
use crate::config::SqlConfig;
use crate::error::Failure;
use crate::wire::{Connection, Target};

/// Looks at what matters before the start.
pub(super) async fn check(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<Vec<Found>, Failure> {
    let facts = Facts::ask(connection).await?;
    target.set_fencing(start::fencing(&facts));
    Ok(start::health_checks(&facts, &Wanted::of(config)))
}

/// Looks at everything.
pub(super) async fn check_health(
    connection: &mut Connection,
    config: &SqlConfig,
) -> Result<Vec<HealthCheck>, Failure> {
    let facts = Facts::ask(connection).await?;
    let wanted = Wanted::of(config);
    let found = start::health_checks(&facts, &wanted);
    let mut found: Vec<_> = found.into_iter().map(|found| found.health).collect();
    found.extend(table::table(connection, config).await?);
    Ok(found)
}
