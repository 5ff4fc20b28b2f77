//! The table of leases in a SQLite file.

pub(crate) mod clocks;
mod connection;
pub(crate) mod db_error;
mod expiry;
mod file;
mod observations;
mod open_files;
pub(crate) mod rows;
mod store;
mod transact;
mod write_queue;

pub(crate) use self::file::FileSystem;
pub(crate) use self::store::SqliteStore;
