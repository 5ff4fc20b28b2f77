//! The locks of each kind of database.

#[cfg(feature = "_server")]
mod server;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "_server")]
mod start;

#[cfg(feature = "_server")]
pub use self::server::SqlLock;
#[cfg(feature = "sqlite")]
pub use self::sqlite::Sqlite;
