//! The statements for PostgreSQL.

pub(crate) mod lease;
pub(crate) mod purge;
pub(crate) mod server_age;
pub(crate) mod session;
pub(crate) mod tokens;

/// Microseconds since 1970, of this moment and not of the beginning of the transaction.
pub(crate) const NOW: &str = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint";
