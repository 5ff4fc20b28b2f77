//! Locks for code without `async`: threads, scripts, programs of one thread.
//!
//! ```
//! # fn main() -> polylock::Result<()> {
//! let locks = polylock::blocking::connect("memory:")?; // or redis://cache
//! let guard = locks.lock("orders/42")?; // waits at most 30 s, and renews by itself
//! let token = guard.fencing_token(); // goes along with every write
//! guard.release()?; // or drop it
//! # assert!(token.is_some());
//! # Ok(()) }
//! ```
//!
//! The thread of the lease engine does all of the work; no runtime has to be started. The functions
//! panic in async code: see [`block_on`].

pub use polylock_core::blocking::{BlockingGuard, BlockingLock, block_on};

use crate::Result;

/// Connects to the lock service at `url`, as [`polylock::connect`](crate::connect) does.
///
/// # Errors
///
/// Those of [`polylock::connect`](crate::connect).
///
/// # Panics
///
/// In async code; see [`block_on`].
#[track_caller]
pub fn connect(url: &str) -> Result<BlockingLock> {
    block_on(crate::connect(url)).map(BlockingLock::new)
}
