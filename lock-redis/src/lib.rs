//! Locks in Redis: one server, Sentinel, Cluster, and a quorum of independent masters.

mod config;
mod error;
mod link;
mod script;

pub use crate::config::RedisConfig;
