//! The table of leases in a SQLite file.

pub(crate) mod clocks;
mod connection;
mod db_error;
mod expiry;
mod file;
mod health;
mod observations;
mod open;
mod origin;
pub(crate) mod rows;
mod schema;
mod serve;
mod store;
mod transact;
mod work;
mod write_queue;

pub(crate) use self::file::is_network;
pub(crate) use self::health::check_health;
pub(crate) use self::schema::{apply, schema};
pub(crate) use self::store::SqliteStore;
