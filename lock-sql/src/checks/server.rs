use std::sync::Arc;

use lock_core::HealthCheck;

use super::found::report;
#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "postgres")]
use super::{pooler, postgres};
use crate::config::{Server, SqlConfig};
use crate::error::Failure;
use crate::lock::{open, within};
use crate::wire::{Answer, Connection, Sql, Target, Value};

/// Looks at a server, and warns of what it finds; refuses one that cannot keep locks and, with strict
/// checks, every one that is not fit for them.
pub(crate) async fn check(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<(), Failure> {
    let found = match config.server {
        #[cfg(feature = "mysql")]
        Server::MySql => mysql::check(connection, target, config).await?,
        #[cfg(feature = "postgres")]
        Server::Postgres => postgres::check(connection, target, config).await?,
    };
    Ok(report(&found, config.strict)?)
}

/// Inspects a server for a report; it creates nothing, and no finding is an error.
pub(crate) async fn check_health(
    target: &Arc<Target>,
    config: &SqlConfig,
) -> Result<Vec<HealthCheck>, Failure> {
    let mut found = Vec::new();
    #[cfg(feature = "postgres")]
    found.extend(pooler::check_health(target, config).await?);
    let mut connection = open(target, config).await?;
    found.extend(match config.server {
        #[cfg(feature = "mysql")]
        Server::MySql => within(config, mysql::check_health(&mut connection, config)).await?,
        #[cfg(feature = "postgres")]
        Server::Postgres => within(config, postgres::check_health(&mut connection, config)).await?,
    });
    Ok(found)
}

/// Asks for what not every user may know, and not every server knows: then none.
pub(super) async fn ask(
    connection: &mut Connection,
    question: impl AsRef<str>,
) -> Result<Option<Answer>, Failure> {
    match connection.message(&Sql::new(question), &[]).await {
        Ok(answer) => Ok(Some(answer)),
        Err(db_error) if db_error.class.ends_connection() => Err(Failure::of_statement(db_error)),
        Err(db_error) => {
            tracing::debug!(%db_error, "a check is left out");
            Ok(None)
        }
    }
}

/// A text of a row, empty if it is null.
pub(super) fn text(value: Option<&Value>) -> String {
    let bytes = value.and_then(Value::bytes).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}
