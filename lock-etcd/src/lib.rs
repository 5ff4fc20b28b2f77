//! Locks in etcd: keys in the order of their creation, each waiter watches its predecessor.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod admin;
mod backend;
mod config;
mod connection;
mod error;
mod health;
mod lease;
mod lock;
mod queue;
mod record;
mod renew;
mod server_lease;
mod store;
mod tls;
mod tokens;

pub use crate::backend::EtcdBackend;
pub use crate::config::EtcdConfig;
pub use crate::lock::Etcd;
