use std::sync::Arc;
use std::time::Duration;

use lock_core::engine::Engine;

use super::Applied;
use crate::config::{Server, SqlConfig};
#[cfg(feature = "mysql")]
use crate::dialect::mysql;
#[cfg(feature = "postgres")]
use crate::dialect::postgres;
use crate::error::{Cause, Failure};
use crate::lock::{open, run_on};
use crate::wire::{Class, Connection, Sql};

/// What the row of kind 0 says about the meaning of the other ones.
pub(crate) const LAYOUT: i64 = 1;

/// The statements that make the table.
pub(super) fn create(config: &SqlConfig) -> String {
    let table = config.table_sql();
    match config.server {
        #[cfg(feature = "mysql")]
        Server::MySql => mysql::schema::create(&table),
        #[cfg(feature = "postgres")]
        Server::Postgres => postgres::schema::create(&table),
    }
}

/// Makes the table for somebody who has asked for it.
pub(super) async fn apply(engine: &Engine, mut config: SqlConfig) -> Result<Applied, Failure> {
    config.creates_table = true;
    let target = Arc::new(config.target()?);
    run_on(engine, async move {
        let mut connection = open(&target, &config).await?;
        ensure(&mut connection, &config).await
    })
    .await
}

/// Makes sure of the table: looks first, because who may use it need not be who may make it.
pub(crate) async fn ensure(
    connection: &mut Connection,
    config: &SqlConfig,
) -> Result<Applied, Failure> {
    let mut tried = 0;
    loop {
        let seen = look(connection, config).await?;
        match seen {
            Seen::Layout(LAYOUT) if tried == 0 => return Ok(Applied::Found),
            Seen::Layout(LAYOUT) => return Ok(Applied::Created),
            Seen::Layout(found) => return Err(unknown(config, found).into()),
            Seen::Undescribed => describe(connection, config).await?,
            Seen::Nothing if !config.creates_table => return Err(missing(config).into()),
            Seen::Nothing => {
                let Err(failure) = make(connection, config).await else {
                    tried += 1;
                    continue;
                };
                // Somebody else may be making it at the same time, who is told the same.
                tried += 1;
                let is_connected = !failure.class().is_some_and(Class::ends_connection);
                if tried == ATTEMPTS || !is_connected {
                    return Err(failure);
                }
                if let Seen::Nothing = look(connection, config).await? {
                    if failure.class() == Some(Class::Denied) {
                        return Err(may_not(config, failure));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// What there is where the table should be.
enum Seen {
    Layout(i64),
    Nothing,
    /// A table that does not say what it means, as one that is copied or made by hand.
    Undescribed,
}

async fn look(connection: &mut Connection, config: &SqlConfig) -> Result<Seen, Failure> {
    let table = config.table_sql();
    let layout = match config.server {
        #[cfg(feature = "mysql")]
        Server::MySql => mysql::schema::layout(&table),
        #[cfg(feature = "postgres")]
        Server::Postgres => postgres::schema::layout(&table),
    };
    match connection.message(&Sql::new(layout), &[]).await {
        Ok(answer) => Ok(answer.int(0).map_or(Seen::Undescribed, Seen::Layout)),
        Err(trouble) if trouble.class == Class::NoTable => Ok(Seen::Nothing),
        Err(trouble) => Err(Failure::of_statement(trouble)),
    }
}

async fn describe(connection: &mut Connection, config: &SqlConfig) -> Result<(), Failure> {
    let table = config.table_sql();
    let describe = match config.server {
        #[cfg(feature = "mysql")]
        Server::MySql => mysql::schema::describe(&table),
        #[cfg(feature = "postgres")]
        Server::Postgres => postgres::schema::describe(&table),
    };
    let described = connection.message(&Sql::new(describe), &[]).await;
    described.map(drop).map_err(Failure::of_statement)
}

async fn make(connection: &mut Connection, config: &SqlConfig) -> Result<(), Failure> {
    let made = connection.message(&Sql::new(create(config)), &[]).await;
    made.map(drop).map_err(Failure::of_statement)
}

fn unknown(config: &SqlConfig, found: i64) -> Cause {
    Cause::Layout {
        table: config.table.as_str().to_owned(),
        found,
        known: LAYOUT,
    }
}

fn missing(config: &SqlConfig) -> Cause {
    let table = config.table_sql();
    Cause::Config(format!(
        "there is no table {table}, and create-table=off: make it with lockctl schema apply, or run \
         what lockctl schema print shows"
    ))
}

fn may_not(config: &SqlConfig, failure: Failure) -> Failure {
    match failure.cause {
        Cause::Sql(trouble) => {
            let (table, source) = (config.table_sql(), trouble.source);
            Cause::MayNotCreate { table, source }.into()
        }
        cause => cause.into(),
    }
}

/// How often the table is made, while others do so as well.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);
