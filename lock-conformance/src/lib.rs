//! Tests that every lock backend has to pass.
//!
//! - [`conformance!`] makes a test of every case, by name; the backend supplies a [`Harness`].
//! - [`taker`] is a process that acquires a lock, to be killed and stopped by cases about crashes.
//! - [`history`] records what happens to locks and judges it, for further tests of a backend.
//! - [`cases`] are the bodies of the tests.
//!
//! # Examples
//!
//! The memory backend of `polylock-core` is its own [`Harness`]. It has no separate processes to kill:
//!
//! ```
//! mod memory {
//!     use polylock_core::memory::Memory;
//!
//!     polylock_conformance::conformance!(harness = Memory::new(), skip = [Taker]);
//! }
//! # fn main() {}
//! ```
//!
//! A custom harness has one required method. Its clients must share nothing but the store, like those of
//! two processes:
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use polylock_conformance::Harness;
//! use polylock_core::DistributedLock;
//! use polylock_core::memory::Memory;
//!
//! #[derive(Debug)]
//! struct Store(Memory);
//!
//! #[async_trait]
//! impl Harness for Store {
//!     async fn client(&self) -> Arc<dyn DistributedLock> {
//!         Arc::new(self.0.client())
//!     }
//! }
//!
//! polylock_conformance::conformance!(
//!     harness = Store(Memory::new()),
//!     skip = [Duplicates, Faults, Look, Taker],
//! );
//! # fn main() {}
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod cases;
mod harness;
pub mod history;
mod macros;
pub mod taker;

pub use self::cases::{Case, Need};
pub use self::harness::{Faults, Harness, Look};

/// Locks a mutex, also after a panic of a test that held it.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
