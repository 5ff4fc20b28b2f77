//! One way to talk to PostgreSQL and to MySQL: statements, values and what went wrong.

mod connection;
mod db_error;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod reserved_connections;
mod socket;
mod sql;
mod target;
mod value;

pub(crate) use self::connection::Connection;
pub(crate) use self::db_error::{Class, DbError};
pub(crate) use self::socket::{Duplicate, Ends, find};
pub(crate) use self::sql::{Sql, hex};
#[cfg(feature = "mysql")]
pub(crate) use self::target::Flavor;
pub(crate) use self::target::{ClientOptions, Target};
pub(crate) use self::value::{Answer, Value};
