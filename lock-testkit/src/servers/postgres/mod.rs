//! PostgreSQL: a server of a test or of a test run, and a standby.

mod launch;
mod options;
mod psql;
mod server;
mod shared;
mod standby;

pub use self::options::PostgresOptions;
pub use self::server::PostgresServer;
pub use self::shared::SharedPostgres;
pub use self::standby::PostgresStandby;
