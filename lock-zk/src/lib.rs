//! Locks in ZooKeeper: ephemeral sequential nodes, each waiter watches its predecessor.

mod acl;
mod checks;
mod config;
mod dial;
mod error;
mod login;
mod probe;
mod tls;

pub use crate::config::{Access, Compat, ZooKeeperConfig};
