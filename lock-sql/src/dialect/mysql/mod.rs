//! The statements for MySQL and MariaDB.

pub(crate) mod lease;
pub(crate) mod server_age;
pub(crate) mod session;
pub(crate) mod tokens;
