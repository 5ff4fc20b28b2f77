mod bare;
mod probe;
#[cfg(test)]
mod tests;

use polylock::LockUrl;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::{ConnectOptions as _, raw_sql};

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
        Mode::Advisory => "GET_LOCK and RELEASE_LOCK",
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
