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
use super::sql::{Mode, Place, failure};
use crate::subject::Failure;
use crate::target::{Bare, runner};

pub(super) async fn open(url: &LockUrl) -> Result<Server, Failure> {
    let place = Place::of(url)?;
    let options = options(&place);
    let asker = Asker::new(connect(&options).await?);
    let commands = match place.mode {
        Mode::Advisory => "pg_advisory_lock and pg_advisory_unlock",
        Mode::Lease => "two updates of a row",
        Mode::Row => "BEGIN and SELECT .. FOR UPDATE in one message, and COMMIT",
    };
    let bare = match Least::open(&place, options).await {
        Ok(least) => least.map(|least| Bare::new(commands, runner(least))),
        // Who may make no table has locks all the same.
        Err(failure) if failure.kind() == "refused" => None,
        Err(failure) => return Err(failure),
    };
    let bare = match place.mode {
        Mode::Advisory | Mode::Row => bare.map(Bare::waiting),
        Mode::Lease => bare,
    };
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
