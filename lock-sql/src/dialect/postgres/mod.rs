//! The statements for PostgreSQL.

pub(crate) mod schema;
