//! PostgreSQL.

mod launch;
mod options;
mod psql;
mod server;

pub use self::options::PostgresOptions;
pub use self::server::PostgresServer;
