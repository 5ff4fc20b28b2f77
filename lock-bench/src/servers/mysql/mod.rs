mod bare;
mod probe;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use polylock::LockUrl;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, raw_sql};

use self::bare::Least;
use self::probe::Asker;
use super::sql::{Place, failure};
use crate::subject::Failure;
use crate::target::{Bare, Probe};

pub(super) async fn probe(url: &LockUrl) -> Result<Arc<dyn Probe>, Failure> {
    let options = options(&Place::of(url)?);
    Ok(Arc::new(Asker::new(connect(&options).await?)))
}

pub(super) async fn bare(url: &LockUrl, run: u64) -> Result<Option<Bare>, Failure> {
    let place = Place::of(url)?;
    let least = Least::open(&place, options(&place), run).await?;
    Ok(least.map(|least| place.mode.bare(least, "GET_LOCK and RELEASE_LOCK")))
}

pub(super) async fn clear(url: &LockUrl, run: u64) -> Result<(), Failure> {
    let place = Place::of(url)?;
    if !place.has_table() {
        return Ok(());
    }
    let table = place.table(run);
    let mut connection = connect(&options(&place)).await?;
    // A transaction whose client is gone may still have a row.
    let drop = format!("SET SESSION lock_wait_timeout = 5; DROP TABLE IF EXISTS {table}");
    let dropped = raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await;
    dropped.map_err(|error| failure(error).at(&format!("the table {table}")))?;
    Ok(())
}

/// As the locks have them.
fn options(place: &Place) -> MySqlConnectOptions {
    let options = MySqlConnectOptions::new()
        .port(place.port.unwrap_or(3306))
        .username(&place.username)
        .database(&place.database)
        .charset("utf8mb4")
        .timezone(Some("+00:00".to_owned()))
        .pipes_as_concat(false)
        .ssl_mode(MySqlSslMode::Disabled)
        .disable_statement_logging();
    let options = match place.is_socket() {
        true => options.socket(&place.host),
        false => options.host(&place.host),
    };
    match &place.password {
        Some(password) => options.password(password),
        None => options,
    }
}

/// Opens a connection of which a statement waits for a row as long as it takes.
async fn connect(options: &MySqlConnectOptions) -> Result<MySqlConnection, Failure> {
    let mut connection = options.connect().await.map_err(failure)?;
    let patience = raw_sql("SET SESSION innodb_lock_wait_timeout = 1073741824");
    patience.execute(&mut connection).await.map_err(failure)?;
    Ok(connection)
}
