//! The table, made by name.

use std::sync::Arc;

use lock_core::engine::Engine;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _};

use super::SqliteStore;
use crate::config::SqliteConfig;
use crate::dialect::sqlite::Statements;
use crate::error::Failure;
use crate::held_leases::HeldLeases;
use crate::schema::Applied;

/// The statements that make the table.
pub(crate) fn schema(config: &SqliteConfig) -> String {
    format!("{};\n", Statements::new(config.table.clone()).create)
}

/// Makes the file and the table, unless they are there.
pub(crate) async fn apply(engine: &Engine, config: &SqliteConfig) -> Result<Applied, Failure> {
    let had_it = has_table(config).await.unwrap_or(false);
    let store = SqliteStore::new(config, engine, &Arc::<HeldLeases>::default())?;
    store.open().await?;
    Ok(if had_it {
        Applied::Found
    } else {
        Applied::Created
    })
}

/// A file that cannot be read is ignored here, and is an error when it is opened for locks.
async fn has_table(config: &SqliteConfig) -> Result<bool, sqlx::Error> {
    let statements = Statements::new(config.table.clone());
    let options = SqliteConnectOptions::new()
        .filename(&config.path)
        .read_only(true)
        .disable_statement_logging();
    let mut connection = options.connect().await?;
    let exists = sqlx::query_scalar::<_, i64>(AssertSqlSafe(statements.exists));
    let exists = exists.bind(config.table.as_str());
    Ok(exists.fetch_optional(&mut connection).await?.is_some())
}
