//! What is looked at on PostgreSQL.

mod facts;
mod more;
mod start;
mod table;
#[cfg(test)]
mod tests;

use lock_core::Finding;

use self::facts::{Facts, Wanted};
use super::connections::{connections, needed};
use super::finding::Found;
use crate::config::{SqlConfig, SqlMode};
use crate::dialect::postgres::session::settings;
use crate::error::Failure;
use crate::session::args::{Args, millis};
use crate::wire::{Connection, Target};

/// Looks at what matters before the start.
pub(super) async fn check(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<Vec<Found>, Failure> {
    let facts = Facts::ask(connection).await?;
    target.set_fencing(start::fencing(&facts));
    Ok(start::findings(
        &facts,
        &Wanted::of(config, target.is_pooled()),
    ))
}

/// Looks at everything.
pub(super) async fn examine(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<Vec<Finding>, Failure> {
    let facts = Facts::ask(connection).await?;
    let wanted = Wanted::of(config, target.is_pooled());
    let found = start::findings(&facts, &wanted);
    let mut found: Vec<_> = found.into_iter().map(|found| found.finding).collect();
    found.push(more::idle_timeout(&facts, &wanted));
    let rooms = table::rooms(connection).await?;
    found.push(connections(&rooms, needed(config), wanted.is_pooled));
    found.extend(table::table(connection, config).await?);
    let are_set = sets_keepalive(connection, &wanted).await?;
    found.push(more::keepalive(&facts, &wanted, are_set));
    Ok(found)
}

/// Does what a session of locks does to its connection.
async fn sets_keepalive(connection: &mut Connection, wanted: &Wanted) -> Result<bool, Failure> {
    if wanted.is_pooled || wanted.mode == SqlMode::Lease {
        return Ok(false);
    }
    let args = Args::new().with(Args::TIMEOUT, millis(wanted.session_timeout));
    match connection.message(&settings(), args.values()).await {
        Ok(_) => Ok(true),
        Err(db_error) if db_error.class.ends_connection() => Err(Failure::of_statement(db_error)),
        Err(_) => Ok(false),
    }
}
