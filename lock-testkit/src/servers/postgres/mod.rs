//! PostgreSQL.

mod launch;
mod options;
mod psql;
mod server;
mod shared;

pub use self::options::PostgresOptions;
pub use self::server::PostgresServer;
pub use self::shared::SharedPostgres;
