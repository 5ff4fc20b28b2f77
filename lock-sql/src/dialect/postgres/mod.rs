//! The statements for PostgreSQL.

pub(crate) mod lease;
pub(crate) mod server_age;
pub(crate) mod session;
pub(crate) mod tokens;
