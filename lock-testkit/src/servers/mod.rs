//! Private servers for tests, started from the packages of the system.
//!
//! Each has a free port of 127.0.0.1, or of the [host](crate::network) that its options name, and a
//! temporary directory of its own, and ends with the value or with the process that started it,
//! however that ends. Everything here blocks the thread, for
//! milliseconds unless it says otherwise.

mod account;
mod client;
mod cluster;
mod database;
mod etcd;
mod host;
mod mariadb;
mod nodes;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod redis;
mod reply;
mod sentinel;
mod server_process;
mod shared;
mod template;
mod tls;
mod zookeeper;

pub use self::client::RespClient;
pub use self::cluster::RedisCluster;
pub use self::database::{DatabaseServer, SharedDatabase};
pub use self::etcd::{EtcdOptions, EtcdServer};
pub use self::mariadb::{MariaDbOptions, MariaDbServer};
pub use self::nodes::RedisNodes;
pub use self::pgbouncer::{PgBouncer, PoolMode};
pub use self::port::free_port;
pub use self::postgres::{PostgresOptions, PostgresServer, PostgresStandby};
pub use self::redis::{Fsync, RedisOptions, RedisServer};
pub use self::reply::Reply;
pub use self::sentinel::RedisSentinels;
pub use self::server_process::{ServerProcess, Service, Setup, Site, started};
pub use self::shared::{SharedServer, share};
pub use self::tls::{ClientCertificate, ServerCertificate, TestCertificates};
pub use self::zookeeper::{SharedZooKeeper, ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};

pub(crate) use self::port::reserve;
pub(crate) use self::template::own_dir;

/// A MariaDB server that the tests of a run have in common.
pub type SharedMariaDb = SharedDatabase;
/// A PostgreSQL server that the tests of a run have in common.
pub type SharedPostgres = SharedDatabase;
