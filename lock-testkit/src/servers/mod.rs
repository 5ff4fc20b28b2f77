//! Private servers for tests, started from the packages of the system.
//!
//! Each has a free port of 127.0.0.1, or of the [host](crate::network) that its options name, and a
//! directory of its own, [in memory](data_dir) if there is enough, and ends with the value or with the
//! process that started it, however that ends. Everything here blocks the thread, for
//! milliseconds unless it says otherwise.

mod cluster;
mod database;
mod etcd;
mod mariadb;
mod mysql;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod redis;
mod resp;
mod sentinel;
mod server_process;
mod shared;
mod template;
mod tls;
mod zookeeper;

pub use self::cluster::RedisCluster;
pub use self::database::{DatabaseServer, SharedDatabase};
pub use self::etcd::{EtcdOptions, EtcdServer};
pub use self::mariadb::{MariaDbOptions, MariaDbServer};
pub use self::pgbouncer::{PgBouncer, PoolMode};
pub use self::postgres::{PostgresOptions, PostgresServer, PostgresStandby};
pub use self::redis::{Fsync, RedisNodes, RedisOptions, RedisServer};
pub use self::resp::{Reply, RespClient};
pub use self::sentinel::RedisSentinels;
pub use self::server_process::ServerProcess;
pub use self::shared::unique;
pub use self::template::data_dir;
pub use self::tls::{ClientCertificate, ServerCertificate, TestCertificates};
pub use self::zookeeper::{SharedZooKeeper, ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};

pub(crate) use self::template::made_once;

/// A MariaDB server that the tests of a run have in common.
pub type SharedMariaDb = SharedDatabase;
/// A PostgreSQL server that the tests of a run have in common.
pub type SharedPostgres = SharedDatabase;
