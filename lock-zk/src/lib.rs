//! Locks in ZooKeeper: ephemeral sequential nodes, each waiter watches its predecessor.

mod acl;
mod admin;
mod attempt;
mod backend;
mod checks;
mod config;
mod diagnose_connect;
mod downgrade;
mod error;
mod find;
mod foreign;
mod lease;
mod lock;
mod login;
mod node;
mod recipe;
mod root;
mod session;
mod time_budget;
mod tls;

pub use crate::backend::ZooKeeperBackend;
pub use crate::config::{Access, Compat, ZooKeeperConfig};
pub use crate::lock::ZooKeeper;
