//! What takes and gives back locks, as the benchmark sees it.

mod failure;
mod locks;

use std::future::Future;
use std::time::Duration;

pub use self::failure::Failure;
pub(crate) use self::failure::{INVALID, LOST, LOST_BEFORE, REFUSED, UNSUPPORTED};
pub(crate) use self::locks::Locks;

/// Something with locks that can be measured: a client, of which all contenders of a process have
/// a clone.
///
/// The loop around it is compiled for each of them, so that the benchmark costs little.
pub trait Subject: Clone + Send + Sync + 'static {
    /// The name of a lock, prepared so that it costs nothing at each acquisition.
    type Key: Clone + Send + Sync + 'static;
    /// What a holder has.
    type Held: Send + 'static;

    /// Prepares a name.
    ///
    /// # Errors
    ///
    /// If the name cannot be that of a lock.
    fn key(&self, name: &str) -> Result<Self::Key, Failure>;

    /// Takes the lock, for as long as `ttl` where it has leases; waits for it at most as long as
    /// `wait` says, or without end. `None` if somebody else has it at the end of that time.
    ///
    /// # Errors
    ///
    /// If the server refuses it, or does not answer.
    ///
    /// # Cancel safety
    ///
    /// A lock that was granted meanwhile stays taken for one ttl at most, or until the client is
    /// dropped where there are no leases.
    fn acquire(
        &self,
        key: &Self::Key,
        ttl: Duration,
        wait: Option<Duration>,
    ) -> impl Future<Output = Result<Option<Self::Held>, Failure>> + Send;

    /// The fencing token of the holder, if there is one.
    fn token(held: &Self::Held) -> Option<u64>;

    /// Gives the lock back.
    ///
    /// # Errors
    ///
    /// If nobody knows whether it is free, and of the kind `lost` if somebody else had it already.
    ///
    /// # Cancel safety
    ///
    /// The lock stays taken for one ttl at most, or until the client is dropped where there are no
    /// leases.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;
}
