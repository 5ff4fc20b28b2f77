//! The statements for PostgreSQL.

pub(crate) mod schema;
pub(crate) mod session;
