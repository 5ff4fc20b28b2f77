//! The atomics that say whether a lock is held; loom has its own, to try every interleaving.

#[cfg(all(test, polylock_loom))]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(all(test, polylock_loom)))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
