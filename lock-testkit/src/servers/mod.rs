//! Private servers for tests, started from the packages of the system.
//!
//! Each has a free port of 127.0.0.1, or of the [host](crate::network) that its options name, and a
//! temporary directory of its own, and ends with the value or with the process that started it,
//! however that ends. Everything here blocks the thread, for
//! milliseconds unless it says otherwise.

mod account;
mod client;
mod cluster;
mod cluster_config;
mod host;
mod launch;
mod mariadb;
mod nodes;
mod options;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod redis;
mod reply;
mod sentinel;
mod shared;
mod template;
mod tls;
mod zookeeper;

pub use self::client::RespClient;
pub use self::cluster::RedisCluster;
pub use self::mariadb::{MariaDbOptions, MariaDbServer, SharedMariaDb};
pub use self::nodes::RedisNodes;
pub use self::options::{Fsync, RedisOptions};
pub use self::pgbouncer::{PgBouncer, PoolMode};
pub use self::postgres::{PostgresOptions, PostgresServer, PostgresStandby, SharedPostgres};
pub use self::redis::RedisServer;
pub use self::reply::{BadReply, Reply};
pub use self::sentinel::RedisSentinels;
pub use self::tls::{ClientCertificate, ServerCertificate, TlsFiles};
pub use self::zookeeper::{
    LeaderLinks, SharedZooKeeper, ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer,
};

pub(crate) use self::template::own_dir;
