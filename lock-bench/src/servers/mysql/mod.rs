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
use super::sql::{Place, failure};
use crate::subject::Failure;

pub(super) async fn open(url: &LockUrl) -> Result<Server, Failure> {
    let place = Place::of(url)?;
    let options = options(&place);
    let asker = Asker::new(connect(&options).await?);
    let least = Least::open(&place, options).await;
    let bare = place.mode.bare(least, "GET_LOCK and RELEASE_LOCK")?;
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
