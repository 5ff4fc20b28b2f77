//! `lockctl doctor` against real servers: each thing that is known to cost locks is provoked and
//! found, and a server without any gets a clean bill.

mod answers;
#[cfg(feature = "sqlite")]
mod files;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "redis")]
mod network;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod support;
#[cfg(feature = "zk")]
mod zookeeper;
