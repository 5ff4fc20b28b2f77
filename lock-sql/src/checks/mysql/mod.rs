//! What is looked at on MySQL and MariaDB.

mod facts;
mod more;
mod start;
mod table;
#[cfg(test)]
mod tests;

use lock_core::Finding;

use self::facts::{Facts, flavor};
use super::clock::is_trusted;
use super::connections::{connections, needed};
use super::finding::Found;
use crate::config::SqlConfig;
use crate::error::Failure;
use crate::wire::{Connection, Target};

/// Finds out which server it is, and looks at what matters before the start.
pub(super) async fn check(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<Vec<Found>, Failure> {
    let facts = Facts::ask(connection).await?;
    target.set_fencing(start::fencing(&facts));
    target.set_flavor(flavor(&facts.version));
    Ok(start::findings(&facts, config.mode, is_trusted(config)))
}

/// Looks at everything.
pub(super) async fn examine(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<Vec<Finding>, Failure> {
    let facts = Facts::ask(connection).await?;
    let found = start::findings(&facts, config.mode, is_trusted(config));
    let mut found: Vec<_> = found.into_iter().map(|found| found.finding).collect();
    found.push(more::idle_timeout(&facts, config));
    found.push(more::lock_wait(&facts, config, target.is_pooled()));
    let rooms = table::rooms(connection, facts.number("max_connections")).await?;
    found.push(connections(&rooms, needed(config), target.is_pooled()));
    found.extend(table::table(connection, config).await?);
    Ok(found)
}
