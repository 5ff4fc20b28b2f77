mod bare;
mod probe;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use polylock::LockUrl;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo,
    RedisError,
};

use self::bare::Least;
use self::probe::Asker;
use crate::subject::{Failure, INVALID, REFUSED};
use crate::target::{Bare, Probe, runner};

pub(super) async fn probe(url: &LockUrl) -> Result<Arc<dyn Probe>, Failure> {
    Ok(Arc::new(Asker::new(connect(&client(url)?).await?)))
}

pub(super) async fn bare(url: &LockUrl) -> Result<Bare, Failure> {
    let connection = connect(&client(url)?).await?;
    let least = Least::new(connection, url.namespace()).await?;
    Ok(Bare::new(
        "SET NX PX, and a script that compares and deletes",
        runner(least),
    ))
}

/// What is not said in the URL is as the locks have it.
fn client(url: &LockUrl) -> Result<Client, Failure> {
    let mut params = url.params();
    let (address, username, password, database) = match url.scheme() {
        "redis+unix" => (
            ConnectionAddr::Unix(url.expect_file()?.to_owned()),
            params.string("username"),
            params.string("password"),
            params.integer("database", 0..=LAST_DATABASE)?.unwrap_or(0),
        ),
        _ => {
            let host = url.expect_host()?;
            (
                ConnectionAddr::Tcp(host.name.clone(), host.port_or(6379)),
                url.username(),
                url.password(),
                database(url.path().trim_start_matches('/'))?,
            )
        }
    };
    let mut settings = RedisConnectionInfo::default().set_db(database);
    if let Some(username) = username {
        settings = settings.set_username(username);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    let info = address.into_connection_info().map_err(failure)?;
    let info = info
        .set_redis_settings(settings)
        .set_tcp_settings(TcpSettings::default().set_nodelay(true));
    Client::open(info).map_err(failure)
}

fn database(path: &str) -> Result<i64, Failure> {
    match path {
        "" => Ok(0),
        number => {
            let number = number.parse().ok();
            let number = number.filter(|number| (0..=LAST_DATABASE).contains(number));
            number.ok_or_else(|| Failure::new(INVALID, "the path of the URL is no database number"))
        }
    }
}

const LAST_DATABASE: i64 = 1_000_000;

async fn connect(client: &Client) -> Result<MultiplexedConnection, Failure> {
    // A timer for each answer is more than the least.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.map_err(failure)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: RedisError) -> Failure {
    let kind = match error.is_io_error() || error.is_timeout() {
        true => "unavailable",
        false => REFUSED,
    };
    Failure::of(kind, &error)
}
