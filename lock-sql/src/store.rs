use std::fmt;

use async_trait::async_trait;
use lock_core::admin::LockInfo;
use lock_core::engine::LeaseId;
use lock_core::{LeaseState, LockKey, Mode, Released, RenewalRequest};

use crate::error::Failure;
use crate::table::{Claim, Refusal, Tokens};

/// The table of leases in one database: what `mode=lease` needs of each.
///
/// Every method is one transaction, bounded in time, and goes on to its end or is undone when its
/// future is dropped. A release that begins after a [`take`](Store::take) was dropped finds what
/// that left behind.
#[async_trait]
pub(crate) trait Store: fmt::Debug + Send + Sync + 'static {
    /// Takes a lock, if it can be had.
    async fn take(&self, key: &LockKey, claim: Claim) -> Result<Taken, Failure>;

    /// Whether a lock can be had; costs others nothing.
    async fn look(&self, key: &LockKey, mode: Mode) -> Result<Seen, Failure>;

    /// Extends leases that have not ended.
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState, Failure>>;

    /// Gives back what `id` has, if it has anything.
    async fn release(&self, key: &LockKey, id: LeaseId) -> Result<Released, Failure>;

    /// Makes an exclusive lock a shared one.
    async fn downgrade(&self, key: &LockKey, id: LeaseId) -> Result<LeaseState, Failure>;

    /// More tokens for an exclusive holder; `None` if it is none any more.
    async fn reserve(&self, key: &LockKey, id: LeaseId) -> Result<Option<Tokens>, Failure>;

    /// The locks that are held and whose keys begin with `prefix`, sorted by key.
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Failure>;

    /// One of them.
    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>, Failure>;

    /// Takes a lock from its holders; what it was.
    async fn break_all(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>, Failure>;
}

/// The tokens of a new holder, or why there is none.
pub(crate) type Taken = Result<Tokens, Refusal>;

/// Whether there could be a new holder.
pub(crate) type Seen = Result<(), Refusal>;
