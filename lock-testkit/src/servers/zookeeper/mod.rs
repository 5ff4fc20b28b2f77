//! ZooKeeper: one server or an ensemble, of a test or of a test run.

mod launch;
mod options;
mod server;
mod words;

pub use self::options::ZooKeeperOptions;
pub use self::server::ZooKeeperServer;
