//! One way to talk to PostgreSQL and to MySQL: statements, values and what went wrong.

mod connection;
mod driver;
mod missing_right;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod reserved_connections;
mod socket;
mod sql;
mod target;
mod value;

pub(crate) use self::connection::ServerConnection;
pub(crate) use self::driver::{DriverOptions, ReservedPool};
pub(crate) use self::socket::{Duplicate, Ends, SocketWatch, find};
pub(crate) use self::sql::{Sql, hex, literal};
pub(crate) use self::target::{ConnectTarget, Flavor};
pub(crate) use self::value::{QueryResult, SqlValue};
pub(crate) use crate::db_error::{DbError, ErrorClass};
