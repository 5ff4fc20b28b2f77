//! The locks of each kind of database.

#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "_server")]
mod start;

#[cfg(feature = "sqlite")]
pub use self::sqlite::Sqlite;
#[cfg(feature = "_server")]
pub(crate) use self::start::{open, run_on};
