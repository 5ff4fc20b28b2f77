mod bare;
mod probe;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use polylock::LockUrl;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
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
    let advisory = "pg_advisory_lock and pg_advisory_unlock";
    Ok(least.map(|least| place.mode.bare(least, advisory)))
}

pub(super) async fn clear(url: &LockUrl, run: u64) -> Result<(), Failure> {
    let place = Place::of(url)?;
    if !place.has_table() {
        return Ok(());
    }
    let table = table(&place, run);
    let mut connection = connect(&options(&place)).await?;
    // A transaction whose client is gone may still have a row.
    let drop = format!("SET lock_timeout = '5s'; DROP TABLE IF EXISTS {table}");
    let dropped = raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await;
    dropped.map_err(|error| failure(error).at(&format!("the table {table}")))?;
    Ok(())
}

fn table(place: &Place, run: u64) -> String {
    format!("{}.{}", place.schema, place.table(run))
}

/// As the locks have them: nothing is taken from files or, where that can be helped, from the
/// environment.
fn options(place: &Place) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .host(&place.host)
        .port(place.port.unwrap_or(5432))
        .username(&place.username)
        .password(place.password.as_deref().unwrap_or_default())
        .database(&place.database)
        .application_name("lock-bench")
        .extra_float_digits(None)
        .ssl_mode(PgSslMode::Disable)
        .disable_statement_logging()
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, Failure> {
    options.connect().await.map_err(failure)
}
