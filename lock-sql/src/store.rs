use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::{LockInfo, Record};
use polylock_core::engine::LeaseId;
use polylock_core::{FencingToken, LeaseState, LockKey, Released, RenewalRequest, Renewer};

use crate::error::SqlFailure;
use crate::held_leases::HeldSqlLeases;
use crate::release_notifier::ReleaseNotifier;
use crate::table::{LockRefusal, MAX_WAITERS, SqlClaim, TokenRange};

/// The table of leases in one database, as `mode=lease` uses it. It renews leases in as few transactions
/// as possible.
///
/// Every method has a time limit, and ends in one transaction that does all or nothing. If its future is
/// dropped, it completes or is undone. A release that begins after a [`take`](LeaseStore::take) was dropped
/// finds the lock that it left behind.
#[async_trait]
pub(crate) trait LeaseStore: Renewer {
    /// Acquires a lock if it is free for this claim.
    async fn take(&self, key: &LockKey, claim: SqlClaim) -> Result<AcquireResult, SqlFailure>;

    /// Whether a lock can be acquired; does not disturb other clients.
    async fn look(&self, key: &LockKey, claim: &SqlClaim) -> Result<Availability, SqlFailure>;

    /// Whether all exclusive waiters queue in the table because this process gets no notifications of
    /// releases. Elsewhere they queue behind others, and after a lost race.
    fn has_queue(&self) -> bool;

    /// Whether waiters keep waiting while the database is unreachable. False if each request to a
    /// hanging disk leaves a thread behind.
    fn outlasts_outages(&self) -> bool {
        true
    }

    /// Removes a waiter from the queue.
    async fn dequeue(&self, key: &LockKey, ticket: LeaseId) -> Result<(), SqlFailure>;

    /// The waiters and the leases of this process.
    fn local(&self) -> &LocalLeases;

    /// This process holds a lease, and wants a notification if it is broken.
    fn attend_holders(&self) {}

    /// How waiters learn of a release.
    fn release_detection(&self) -> ReleaseDetection {
        ReleaseDetection::Polled
    }

    /// Releases the lock of `id`, if it has one.
    async fn release(&self, key: &LockKey, id: LeaseId) -> Result<Released, SqlFailure>;

    /// Makes an exclusive lock a shared one.
    async fn downgrade(&self, key: &LockKey, id: LeaseId) -> Result<LeaseState, SqlFailure>;

    /// Draws more tokens for an exclusive holder; `None` if the lock is lost.
    async fn reserve(&self, key: &LockKey, id: LeaseId) -> Result<Option<TokenRange>, SqlFailure>;

    /// Gives the exclusive lease `id` the id of a renewal, and renews it. Returns the new token, or
    /// `None` if it is not held. A repeated call returns the same result.
    async fn adopt(
        &self,
        id: LeaseId,
        renewal: &RenewalRequest,
    ) -> Result<Option<FencingToken>, SqlFailure>;

    /// The locks that are held and whose keys begin with `prefix`, sorted by key.
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, SqlFailure>;

    /// One of them.
    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>, SqlFailure>;

    /// Takes a lock from its holders; returns its state before.
    async fn break_all(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>, SqlFailure>;

    /// The record that a holder has stored beside the lock.
    async fn record(&self, key: &LockKey) -> Result<Option<Record>, SqlFailure>;

    /// Stores a record, unless one with a larger token is stored; returns whether it did.
    async fn write_record(
        &self,
        key: &LockKey,
        record: &Record,
        keep: Duration,
    ) -> Result<bool, SqlFailure>;
}

/// The part that a process has in the locks of a table.
#[derive(Default)]
pub(crate) struct LocalLeases {
    /// Wakes waiters, on releases of this process and on notifications.
    pub(crate) waiters: ReleaseNotifier,
    pub(crate) held: HeldSqlLeases,
}

/// How waiters learn of a release, which sets the bounds of their backoff. The backoff doubles each time. Sleeps are
/// random, between half of it and all of it, so that waiters do not poll all at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReleaseDetection {
    /// Other clients notify this process of a release, once it has read the rows: a notified waiter need
    /// not read them again. Messages may be lost, and the holder may have died.
    Notified,
    Polled,
}

impl ReleaseDetection {
    /// Min and max backoff of a waiter with so many ahead of it in the queue. If hundreds polled as
    /// often as the first ones, the database would have no time left for the holder.
    pub(crate) fn bounds(self, ahead: Option<usize>) -> (Duration, Duration) {
        match (self, ahead) {
            (Self::Notified, Some(..MAX_WAITERS)) => (BACKOFF_WITH_PLACE, BACKOFF_WITH_PLACE),
            (Self::Notified, _) => (BACKOFF_WHEN_NOTIFIED, BACKOFF_WHEN_NOTIFIED),
            // The second one has to notice that it becomes the first.
            (Self::Polled, Some(0 | 1)) => (MIN_BACKOFF, MAX_BACKOFF / 4),
            (Self::Polled, Some(MAX_WAITERS..)) => (BACKOFF_WITHOUT_PLACE, BACKOFF_WITHOUT_PLACE),
            (Self::Polled, _) => (MIN_BACKOFF, MAX_BACKOFF),
        }
    }
}

const MIN_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(20);

const BACKOFF_WHEN_NOTIFIED: Duration = Duration::from_secs(1);

/// Backoff of a notified waiter with a place in the queue, which it has to renew in time.
const BACKOFF_WITH_PLACE: Duration = Duration::from_millis(250);

/// Backoff of a waiter that found the queue full: its turn is far away.
const BACKOFF_WITHOUT_PLACE: Duration = Duration::from_millis(500);

/// The tokens of a new holder, or why there is none.
pub(crate) type AcquireResult = Result<TokenRange, LockRefusal>;

/// Whether there could be a new holder.
pub(crate) type Availability = Result<(), LockRefusal>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_that_found_the_queue_full_polls_seldom() {
        let bounds = |ahead| {
            let (min, max) = ReleaseDetection::Polled.bounds(ahead);
            (min.as_millis(), max.as_millis())
        };
        let places = [Some(0), Some(1), Some(2), Some(MAX_WAITERS - 1)];
        assert_eq!(places.map(bounds), [(1, 5), (1, 5), (1, 20), (1, 20)]);
        // Also after it was woken.
        assert_eq!(bounds(Some(MAX_WAITERS)), (500, 500));
        // It shares the lock, and has no place.
        assert_eq!(bounds(None), (1, 20));
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_notified_waiter_renews_its_place_in_time() {
        use crate::table::TICKET;

        for ahead in [0, MAX_WAITERS - 1] {
            let (_, max) = ReleaseDetection::Notified.bounds(Some(ahead));
            // Half of it is over when a poll renews it.
            assert!(max <= TICKET / 4, "the max backoff is {max:?}");
        }
        for ahead in [None, Some(MAX_WAITERS)] {
            let (_, max) = ReleaseDetection::Notified.bounds(ahead);
            assert_eq!(max, BACKOFF_WHEN_NOTIFIED);
        }
    }
}
