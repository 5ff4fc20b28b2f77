use lock_core::{LockKey, Result, Wait};

use super::place::Place;

/// What is said to a database inside of the caller's transaction.
///
/// Each method leaves the transaction as it was when it returns `Ok`, but for what it is for, and
/// also when the error is [`Contended`](lock_core::ErrorKind::Contended).
#[expect(unnameable_types, reason = "nobody else implements it")]
pub trait DatabaseTransaction: Send {
    /// Locks the row of a key and draws a token; `None` if the row is not free in time.
    fn take(
        &mut self,
        place: &Place,
        key: &LockKey,
        wait: Wait,
    ) -> impl Future<Output = Result<Option<u64>>> + Send;

    /// Raises the largest token that a resource has seen to this one, and returns the largest.
    fn raise(
        &mut self,
        place: &Place,
        resource: &LockKey,
        token: u64,
    ) -> impl Future<Output = Result<u64>> + Send;
}
