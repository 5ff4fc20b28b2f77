mod bare;
mod probe;
#[cfg(test)]
mod tests;

use polylock::LockUrl;
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};

use self::bare::Least;
use self::probe::Asker;
use super::Server;
use super::sql::{Place, failure};
use crate::subject::Failure;

pub(super) async fn open(url: &LockUrl) -> Result<Server, Failure> {
    let place = Place::of(url)?;
    let options = options(&place);
    let asker = Asker::new(connect(&options).await?);
    let least = Least::open(&place, options).await;
    let bare = place
        .mode
        .bare(least, "pg_advisory_lock and pg_advisory_unlock")?;
    Ok(Server::new(asker, bare))
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
