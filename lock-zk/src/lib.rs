//! Locks in ZooKeeper: ephemeral sequential nodes, each waiter watches its predecessor.

mod acl;
mod admin;
mod attempt;
mod backend;
mod budget;
mod checks;
mod config;
mod dial;
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
mod probe;
mod root;
mod session;
mod standing;
mod tls;
mod tokens;

pub use crate::backend::ZooKeeperBackend;
pub use crate::config::{Access, Compat, ZooKeeperConfig};
pub use crate::lock::ZooKeeper;
