//! Locks in ZooKeeper: ephemeral sequential nodes, each waiter watches its predecessor.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod admin;
mod backend;
mod config;
mod diagnose_connect;
mod downgrade;
mod error;
mod health;
mod lease;
mod lock;
mod recipe;
mod record;
mod session;
mod tls;

pub use crate::backend::ZooKeeperBackend;
pub use crate::config::{Compat, NodeAccess, ZooKeeperConfig};
pub use crate::lock::ZooKeeper;
