use std::sync::Arc;
use std::time::Duration;

use polylock_core::ErrorKind;
use polylock_core::engine::Engine;

use super::Applied;
use crate::config::{ServerKind, SqlConfig};
use crate::dialect::sequence;
use crate::dialect::table::{self, LAYOUT, TableTexts};
use crate::error::{SqlCause, SqlFailure, foreign, lacks};
use crate::wire::{ConnectTarget, DbError, ErrorClass, ServerConnection, Sql};

pub(super) fn texts(config: &SqlConfig) -> TableTexts {
    let table = config.table_sql();
    match config.server {
        ServerKind::MySql => table::mysql(&table),
        ServerKind::Postgres => table::postgres(&table),
    }
}

/// Creates the table on request.
pub(super) async fn apply(
    engine: &Engine,
    mut config: SqlConfig,
) -> polylock_core::Result<Applied> {
    config.creates_table = true;
    let applied = engine.run(async move {
        let target = Arc::new(ConnectTarget::of(config)?);
        target.check_files().await?;
        let mut connection = ServerConnection::open_first(&target).await?;
        let ensured = async {
            match ensure(&mut connection).await? {
                Applied::Found => ensure_sequence(&mut connection).await,
                applied => Ok(applied),
            }
        };
        Ok(target.within(ensured).await?)
    });
    applied.await
}

/// Ensures that the table exists. Checks first, because the user may have no right to create it.
pub(crate) async fn ensure(connection: &mut ServerConnection) -> Result<Applied, SqlFailure> {
    let target = Arc::clone(&connection.target);
    let config = &target.config;
    let mut tried = 0;
    loop {
        match look(connection, config).await? {
            TableState::Layout(LAYOUT) if tried == 0 => return Ok(Applied::Found),
            TableState::Layout(LAYOUT) => return Ok(Applied::Created),
            TableState::Layout(found) => {
                return Err(SqlCause::layout(&config.table_sql(), found, LAYOUT).into());
            }
            TableState::Undescribed => {
                let describe = Sql::new(texts(config).describe);
                let described = connection.run(&describe, &[]).await;
                described.map_err(SqlFailure::of_statement)?;
            }
            TableState::Nothing if !config.creates_table => return Err(missing(config).into()),
            TableState::Nothing => {
                tried += 1;
                let create = Sql::new(texts(config).create);
                let Err(db_error) = connection.run(&create, &[]).await else {
                    continue;
                };
                if tried == ATTEMPTS || db_error.class.ends_connection() {
                    return Err(SqlFailure::of_statement(db_error));
                }
                // Another client may be creating it at the same time, and both get this error.
                if let TableState::Nothing = look(connection, config).await? {
                    if db_error.class == ErrorClass::NoRight {
                        return Err(may_not_make(config, db_error));
                    }
                    tokio::time::sleep(BACKOFF).await;
                }
            }
        }
    }
}

/// Creates the sequence of the tokens if it is missing beside a table: a dump or a copy of the table alone has none.
async fn ensure_sequence(connection: &mut ServerConnection) -> Result<Applied, SqlFailure> {
    let target = Arc::clone(&connection.target);
    let config = &target.config;
    let read = Sql::new(format!(
        "SELECT NULL FROM {} LIMIT 1",
        sequence(&config.table_sql())
    ));
    match connection.run(&read, &[]).await {
        Err(db_error) if db_error.class == ErrorClass::NoTable => {
            let create = Sql::new(texts(config).create);
            let created = connection.run(&create, &[]).await;
            created.map_err(SqlFailure::of_statement)?;
            Ok(Applied::Created)
        }
        // A user that may not read it can see that it is there.
        Err(db_error) if db_error.class != ErrorClass::NoRight => {
            Err(SqlFailure::of_statement(db_error))
        }
        _ => Ok(Applied::Found),
    }
}

enum TableState {
    Layout(i64),
    Nothing,
    /// A table without a layout row, such as a copy or one created by hand.
    Undescribed,
}

async fn look(
    connection: &mut ServerConnection,
    config: &SqlConfig,
) -> Result<TableState, SqlFailure> {
    let layout = Sql::new(texts(config).layout);
    match connection.run(&layout, &[]).await {
        Ok(answer) => Ok(answer
            .int(0)
            .map_or(TableState::Undescribed, TableState::Layout)),
        Err(db_error) if db_error.class == ErrorClass::NoTable => Ok(TableState::Nothing),
        // MySQL shows no more of a table to users that may not read it.
        Err(db_error) if db_error.class == ErrorClass::NoRight => {
            let table = config.table_sql();
            let says = format!(
                "this user may not read the table {table}, if there is one: it needs SELECT, INSERT and \
                 UPDATE on what lockctl schema apply makes"
            );
            Err(SqlCause::said(ErrorKind::Denied, says, db_error.source).into())
        }
        Err(db_error) if matches!(db_error.class, ErrorClass::Other | ErrorClass::WrongTable) => {
            Err(other_table(connection, config, db_error).await)
        }
        Err(db_error) => Err(SqlFailure::of_statement(db_error)),
    }
}

/// The error for a table that is not the table of locks. `db_error` is the server's reply to a statement
/// for it, and the error if the table has the expected columns.
async fn other_table(
    connection: &mut ServerConnection,
    config: &SqlConfig,
    db_error: DbError,
) -> SqlFailure {
    let table = config.table_sql();
    let about = Sql::new(texts(config).about);
    let about = connection.run(&about, &[]).await;
    let text = |at: usize| {
        let value = about.as_ref().ok()?.rows.first()?.get(at)?;
        String::from_utf8(value.bytes()?.to_vec()).ok()
    };
    let columns = text(0).filter(|columns| lacks(columns, &table::columns()));
    let Some(columns) = columns else {
        return SqlFailure::of_statement(db_error);
    };
    let remove = format!("DROP TABLE {table}");
    foreign(
        &table,
        &columns,
        text(1).as_deref(),
        &remove,
        db_error.source,
    )
    .into()
}

fn missing(config: &SqlConfig) -> SqlCause {
    let table = config.table_sql();
    SqlCause::Config(format!(
        "there is no table {table}, and create-table=off: make it with lockctl schema apply, or run \
         what lockctl schema print shows"
    ))
}

fn may_not_make(config: &SqlConfig, db_error: DbError) -> SqlFailure {
    let table = config.table_sql();
    let says = format!(
        "there is no table {table}, and this user may not create it: as another user, run lockctl \
         schema apply, or what lockctl schema print shows"
    );
    SqlCause::said(ErrorKind::Denied, says, db_error.source).into()
}

/// Max attempts to create the table while other clients do the same.
const ATTEMPTS: u32 = 5;
const BACKOFF: Duration = Duration::from_millis(20);
