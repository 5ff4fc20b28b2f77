//! Checks of a server or a file at startup, and for the health report.

#[cfg(feature = "_server")]
mod mysql;
#[cfg(feature = "_server")]
mod pooler;
#[cfg(feature = "_server")]
mod postgres;
#[cfg(feature = "_server")]
mod server;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "_server")]
pub(crate) use self::pooler::look_for_pooler;
#[cfg(feature = "_server")]
pub(crate) use self::server::{check, check_health};
#[cfg(feature = "sqlite")]
pub(crate) use self::sqlite::check_file;
