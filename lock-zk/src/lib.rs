//! Locks in ZooKeeper: ephemeral sequential nodes, each waiter watches its predecessor.

mod acl;
mod admin;
mod attempt;
mod backend;
mod budget;
mod checks;
mod config;
mod connect;
mod diagnose_connect;
mod directory;
mod downgrade;
mod error;
mod find;
mod foreign;
mod lease;
mod lock;
mod login;
mod names;
mod negotiated;
mod node;
mod queue_position;
mod root;
mod session;
mod tls;
mod tokens;

pub use crate::backend::ZooKeeperBackend;
pub use crate::config::{Access, Compat, ZooKeeperConfig};
pub use crate::lock::ZooKeeper;
