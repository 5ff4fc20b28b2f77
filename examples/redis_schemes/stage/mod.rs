//! What the schemes play on: servers, connections, networks.

mod address;
mod pair;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::block_in_place;
use tokio::time::sleep;

use lock_testkit::servers::{RedisOptions, RedisServer};

pub(crate) use self::address::Address;
pub(crate) use self::pair::Pair;

pub(crate) type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// A server of its own, which keeps everything in memory.
pub(crate) fn server() -> RedisServer {
    block_in_place(|| RedisServer::start(RedisOptions::new()))
}

/// A client of its own.
pub(crate) async fn connect(port: u16) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(("127.0.0.1", port))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

/// What a server answers, past all clients.
pub(crate) fn look(server: &RedisServer, command: &[&str]) -> Result<String> {
    let reply = block_in_place(|| server.try_command(command))?;
    Ok(reply.text().unwrap_or_else(|| "nothing".to_owned()))
}

/// What a holder does inside, for long enough to be seen.
pub(crate) async fn work() {
    sleep(Duration::from_millis(40)).await;
}
