//! MariaDB.

mod launch;
mod options;
mod server;

pub use self::options::MariaDbOptions;
pub use self::server::MariaDbServer;
