//! The statements for MySQL and MariaDB.

pub(crate) mod lease;
pub(crate) mod purge;
pub(crate) mod server_age;
pub(crate) mod session;
pub(crate) mod tokens;

/// Microseconds since 1970. The clock stands still while a statement runs.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
