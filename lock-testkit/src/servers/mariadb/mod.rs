//! MariaDB.

mod client;
mod launch;
mod options;
mod server;
mod shared;

pub use self::options::MariaDbOptions;
pub use self::server::MariaDbServer;
pub use self::shared::SharedMariaDb;
