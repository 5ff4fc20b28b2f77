//! Locks in ZooKeeper: ephemeral sequential nodes, each waiter watches its predecessor.

mod acl;
mod config;
mod dial;
mod error;

pub use crate::config::{Access, Compat, ZooKeeperConfig};
