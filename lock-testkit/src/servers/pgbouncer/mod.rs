//! PgBouncer, the pooler in front of PostgreSQL.

mod launch;
mod server;

pub use self::server::{PgBouncer, PoolMode};
