//! The statements that a lock takes at least, on the same client.

mod far;
mod mysql;
mod postgres;

pub(crate) use self::far::Far;
use crate::locks::Mode;
use crate::server::{Database, Server};

/// One who runs such statements.
pub(crate) enum Bare {
    MariaDb(mysql::Client),
    Postgres(postgres::Client),
}

/// What they run on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Means {
    /// A connection of its own.
    Connection,
    /// A pool of so many. It asks a connection that comes back whether it is alive.
    Pool(u32),
}

impl Bare {
    /// Connects, in this runtime.
    pub(crate) async fn open(database: Database, url: &str, means: Means) -> Self {
        match database {
            Database::MariaDb => Self::MariaDb(mysql::Client::open(url, means).await),
            Database::Postgres => Self::Postgres(postgres::Client::open(url, means).await),
        }
    }

    /// Another one on the same pool.
    pub(crate) fn another(&self) -> Self {
        match self {
            Self::MariaDb(client) => Self::MariaDb(client.another()),
            Self::Postgres(client) => Self::Postgres(client.another()),
        }
    }

    /// Takes a lock, has something done, and frees it.
    pub(crate) async fn pair(&mut self, mode: Mode, key: u32, between: impl AsyncFnOnce()) {
        match self {
            Self::MariaDb(client) => client.pair(mode, key, between).await,
            Self::Postgres(client) => client.pair(mode, key, between).await,
        }
    }

    /// One round trip.
    pub(crate) async fn select_one(&mut self) {
        match self {
            Self::MariaDb(client) => client.select_one().await,
            Self::Postgres(client) => client.select_one().await,
        }
    }
}

/// Makes what they run on.
pub(crate) fn prepare(server: &Server) {
    match server {
        Server::MariaDb(server) => drop(server.sql(mysql::TABLE)),
        Server::Postgres(server) => drop(server.sql(postgres::TABLE)),
    }
}

/// Keys 0 to 63 are there: a lock that is used again and again has its row.
const OWNER: &[u8] = b"0123456789abcdef";
