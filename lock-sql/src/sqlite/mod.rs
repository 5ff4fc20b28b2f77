//! The table of leases in a SQLite file.

mod clocks;
mod connection;
mod desk;
mod file;
mod open;
mod rows;
mod serve;
mod store;
mod transact;
mod trouble;
mod work;

pub(crate) use self::store::SqliteStore;
