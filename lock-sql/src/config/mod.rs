//! Which database has the locks, and how it is used.

#[cfg(feature = "_server")]
mod options;
#[cfg(feature = "_server")]
mod pool;
#[cfg(feature = "_server")]
mod server;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(all(test, feature = "postgres", feature = "mysql"))]
mod tests;
#[cfg(feature = "_server")]
mod url;

#[cfg(feature = "_server")]
pub(crate) use self::options::ServerKind;
#[cfg(feature = "_server")]
pub use self::options::SqlMode;
#[cfg(feature = "_server")]
pub(crate) use self::pool::{AppPool, POOL_LOCK_WAITS, RENEWERS};
#[cfg(feature = "_server")]
pub(crate) use self::server::POOLED_ADVISORY;
#[cfg(feature = "_server")]
pub use self::server::SqlConfig;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteConfig;
