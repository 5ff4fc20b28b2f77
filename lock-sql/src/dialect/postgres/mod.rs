//! The statements for PostgreSQL.

pub(crate) mod lease;
pub(crate) mod purge;
pub(crate) mod server_age;
pub(crate) mod session;
pub(crate) mod tokens;

/// Has a transaction not wait for the disk, for what a crash may undo: information for humans, which is
/// about sessions that end with the server, and releases of leases.
pub(crate) const LAZY: &str = "set_config('synchronous_commit', 'off', true)";

/// Microseconds since 1970, of this moment and not of the beginning of the transaction.
pub(crate) const NOW: &str = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint";
