//! Locks in Redis: one server, Sentinel, Cluster, and a quorum of independent masters.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod admin;
mod backend;
mod checks;
mod config;
mod contention;
mod error;
mod foreign;
mod held_leases;
mod keys;
mod lease;
mod lock;
mod notifications;
mod queue;
mod quorum;
mod record;
mod refusal;
mod renew;
mod reply;
mod script;
// Not in `script`, which the integration tests compile as well to know the requests of a client.
#[cfg(test)]
#[path = "script/tests.rs"]
mod script_tests;
mod server;
mod stranger;
mod topology;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use crate::backend::RedisBackend;
pub use crate::config::RedisConfig;
pub use crate::lock::Redis;
pub use crate::quorum::Redlock;

/// Locks a mutex, also one that is poisoned: no panic leaves a value half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
