//! PostgreSQL: a server of a test or of a test run, and a standby.

mod launch;
mod options;
mod server;
mod standby;

pub use self::options::PostgresOptions;
pub use self::server::PostgresServer;
pub use self::standby::PostgresStandby;
