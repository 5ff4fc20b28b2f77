//! ZooKeeper: one server or an ensemble, of a test or of a test run.

mod ensemble;
mod launch;
mod options;
mod server;
mod shared;
mod words;

pub use self::ensemble::ZooKeeperEnsemble;
pub use self::options::ZooKeeperOptions;
pub use self::server::ZooKeeperServer;
pub use self::shared::SharedZooKeeper;
