//! The queue of the waiters for a lock: one row for each, in the order of arrival.
//!
//! An exclusive waiter that polls queues at once. One that is notified of releases queues only if others have
//! a place, or after a lost race: another client was faster than its notification. A shared request or a
//! permit queues only after it has lost a race to an exclusive holder. Its place keeps back the exclusive
//! waiters behind it; to acquire the lock, it need not be the first in the queue.
//!
//! A waiter renews its row while it waits. No later waiter overtakes it during that time; the row of a dead
//! waiter expires soon.
//!
//! Each of the two kinds has its own slots, so that neither leaves the other without a place.

use std::ops::Range;
use std::time::Duration;

use polylock_core::Mode;
use polylock_core::engine::LeaseId;

use super::lock_rows::LockRows;
use super::row::{QUEUE, ReadContext, SlotHolder};
use super::{LockRefusal, SqlClaim, is_sharing};

impl LockRows {
    /// Refuses requests that are not the first in the queue.
    pub(super) fn check_turn(
        &self,
        ticket: Option<LeaseId>,
        ctx: &ReadContext,
    ) -> Result<(), LockRefusal> {
        let waiters = self.waiters(ctx).map(|(_, waiter)| waiter);
        match waiters.min_by_key(|waiter| waiter.token) {
            Some(first) if Some(first.id) != ticket => {
                let until = first.ends(ctx);
                Err(LockRefusal::held(until))
            }
            _ => Ok(()),
        }
    }

    /// Says how many waiters are ahead of this one.
    pub(super) fn with_turn(
        &self,
        refusal: LockRefusal,
        claim: &SqlClaim,
        ctx: &ReadContext,
    ) -> LockRefusal {
        let ahead = claim.ticket.and_then(|ticket| {
            let mut waiters: Vec<_> = self.waiters(ctx).map(|(_, waiter)| waiter).collect();
            waiters.sort_by_key(|waiter| waiter.token);
            let mine = waiters.iter().position(|waiter| waiter.id == ticket);
            // A waiter with a place has to renew it in time, however many are ahead of it.
            let mine = mine.map(|ahead| ahead.min(MAX_WAITERS - 1));
            let has_none = !is_sharing(claim.mode) && !self.has_room(claim.mode, ctx);
            mine.or_else(|| has_none.then_some(waiters.len()))
        });
        LockRefusal { ahead, ..refusal }
    }

    /// Whether a waiter has to queue, or to renew its place, which expires soon.
    pub(crate) fn is_ticket_due(&self, claim: &SqlClaim, ctx: &ReadContext) -> bool {
        let Some(ticket) = claim.ticket else {
            return false;
        };
        let shares = is_sharing(claim.mode);
        let first = self.held_leases(ctx).next();
        // Where others share the lock, the place would only delay an exclusive waiter.
        if shares && first.is_none_or(|(slot, _)| slot > 0) {
            return false;
        }
        let mine = self.waiters(ctx).find(|(_, waiter)| waiter.id == ticket);
        match mine {
            Some((_, waiter)) => waiter.ends(ctx).since(ctx.moment) < TICKET / 2,
            // A place is kept.
            None if shares => {
                let is_kept = claim.is_queued && self.find(ticket).is_some();
                is_kept || claim.is_notified && self.has_room(claim.mode, ctx)
            }
            None => match self.queue_len(ctx) {
                // A notification that came too late is a lost race; a place is kept.
                0 => claim.queues || claim.is_notified || claim.is_queued,
                _ => self.has_room(claim.mode, ctx),
            },
        }
    }

    /// Whether a waiter in this mode finds a place.
    fn has_room(&self, mode: Mode, ctx: &ReadContext) -> bool {
        let slots = slots(mode);
        let taken = self.waiters(ctx).filter(|(slot, _)| slots.contains(slot));
        taken.count() < slots.len()
    }

    /// How many waiters have a place.
    pub(crate) fn queue_len(&self, ctx: &ReadContext) -> usize {
        self.waiters(ctx).count()
    }

    /// Enters a waiter into the queue, or keeps its place, if it has to.
    pub(crate) fn enqueue(&mut self, claim: &SqlClaim, ctx: &ReadContext) {
        let Some(ticket) = claim.ticket.filter(|_| self.is_ticket_due(claim, ctx)) else {
            return;
        };
        let slot = self.place(ticket, claim.mode, ctx);
        let mine = self.places(ctx).find(|(_, waiter)| waiter.id == ticket);
        let token = mine.map(|(_, waiter)| waiter.token).unwrap_or_else(|| {
            let tokens = self.places(ctx).map(|(_, waiter)| waiter.token);
            tokens.max().map_or(1, |last| last + 1)
        });
        self.row_mut(slot, ctx).set_holder(SlotHolder {
            id: ticket,
            token,
            permits: 0,
            boot: ctx.boot,
            shift: ctx.shift,
            expires: ctx.moment + TICKET,
            end: None,
            ttl: TICKET,
            label: String::new(),
            since: ctx.unix,
        });
    }

    /// The slot of a waiter, or one for it. An expired place goes to another waiter only if all others are
    /// taken: its waiter may be late. The one that expired first goes first.
    pub(crate) fn place(&self, ticket: LeaseId, mode: Mode, ctx: &ReadContext) -> u32 {
        let mut slots = slots(mode);
        let first = slots.start;
        let places = self.places(ctx).filter(|(slot, _)| slots.contains(slot));
        let left: Vec<_> = places.map(|(slot, it)| (it.ends(ctx), slot)).collect();
        let expired = || {
            let expired = left.iter().filter(|(end, _)| *end <= ctx.moment).min();
            expired.map(|(_, slot)| *slot)
        };
        let mine = self.find(ticket);
        mine.or_else(|| slots.find(|slot| left.iter().all(|(_, taken)| taken != slot)))
            .or_else(expired)
            .unwrap_or(first)
    }

    /// The slot of a waiter whose place has expired or soon will, so that another waiter may enter it.
    pub(crate) fn late_place(&self, ticket: LeaseId, ctx: &ReadContext) -> Option<u32> {
        let mine = self.places(ctx).find(|(_, waiter)| waiter.id == ticket);
        let lasts = mine.is_some_and(|(_, waiter)| waiter.ends(ctx) >= ctx.moment + TICKET / 4);
        self.find(ticket).filter(|_| !lasts)
    }

    pub(crate) fn dequeue(&mut self, ticket: LeaseId, ctx: &ReadContext) {
        if let Some(slot) = self.find(ticket) {
            self.row_mut(slot, ctx).holder = None;
        }
    }
}

/// The slots of waiters in this mode. Those that share the lock have some of their own, or exclusive waiters
/// that never pause would leave them none.
fn slots(mode: Mode) -> Range<u32> {
    match is_sharing(mode) {
        true => SHARED_QUEUE..SHARED_QUEUE + MAX_SHARED_WAITERS,
        false => QUEUE..SHARED_QUEUE,
    }
}

/// How long the place of a waiter lasts without a renewal. The waiter polls several times as often.
pub(crate) const TICKET: Duration = Duration::from_secs(1);

/// The latest end of the place of a waiter, counted from now. A later end was written before the clock was
/// set back.
pub(crate) const FAR: Duration = Duration::from_secs(2);

/// Further exclusive waiters have no place, to limit the cost of a poll.
pub(crate) const MAX_WAITERS: usize = 16;

/// The same for waiters that share the lock.
const MAX_SHARED_WAITERS: u32 = 8;

/// The first slot of waiters that share the lock.
const SHARED_QUEUE: u32 = QUEUE + MAX_WAITERS as u32;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::table::TokenRange;
    use crate::table::testing::{EXCLUSIVE, SHARED, at, claim, id, now};

    fn queued(n: u8) -> SqlClaim {
        SqlClaim {
            ticket: Some(id(100 + n)),
            ..claim(n, EXCLUSIVE)
        }
    }

    fn take(
        lock: &mut LockRows,
        claim: &SqlClaim,
        ctx: &ReadContext,
    ) -> Result<TokenRange, LockRefusal> {
        let taken = lock.take(claim, ctx);
        if taken.is_err() {
            lock.enqueue(claim, ctx);
        }
        taken
    }

    fn later(millis: u64) -> ReadContext {
        ReadContext {
            moment: at(0) + Duration::from_millis(millis),
            ..now(0)
        }
    }

    #[test]
    fn waiters_are_served_in_the_order_of_their_arrival() {
        let mut lock = LockRows::default();
        take(&mut lock, &queued(1), &later(0)).unwrap();
        let held = at(0) + Duration::from_secs(30);
        for (n, ahead) in [(2, 0), (3, 1), (5, 2)] {
            let refused = |ahead| Err(LockRefusal { until: held, ahead });
            assert_eq!(take(&mut lock, &queued(n), &later(2)), refused(None));
            assert_eq!(take(&mut lock, &queued(n), &later(2)), refused(Some(ahead)));
        }
        lock.dequeue(id(105), &later(2));
        lock.release(id(1), &later(10));
        let ends = Err(LockRefusal::held(later(1002).moment));
        // Neither the former holder, nor a request without waiting, nor a later waiter.
        assert_eq!(take(&mut lock, &queued(1), &later(11)), ends);
        assert_eq!(take(&mut lock, &claim(4, EXCLUSIVE), &later(11)), ends);
        assert!(take(&mut lock, &queued(3), &later(11)).is_err());
        assert!(lock.look(&queued(3), &later(11)).is_err());
        assert_eq!(lock.look(&queued(2), &later(11)), Ok(()));
        take(&mut lock, &queued(2), &later(12)).unwrap();
        lock.release(id(2), &later(13));
        assert_eq!(lock.look(&queued(1), &later(14)).ok(), None);
        take(&mut lock, &queued(3), &later(14)).unwrap();
        lock.release(id(3), &later(15));
        take(&mut lock, &queued(1), &later(16)).unwrap();
        lock.release(id(1), &later(17));
        take(&mut lock, &claim(4, EXCLUSIVE), &later(18)).unwrap();
    }

    #[test]
    fn a_waiter_that_died_or_gave_up_is_passed_over() {
        for is_dead in [true, false] {
            let mut lock = LockRows::default();
            take(&mut lock, &queued(1), &later(0)).unwrap();
            take(&mut lock, &queued(2), &later(1)).unwrap_err();
            take(&mut lock, &queued(3), &later(2)).unwrap_err();
            assert_eq!(lock.look(&queued(3), &later(500)).ok(), None);
            // Half of its time is over: it has to say that it is there.
            assert_eq!(lock.look(&queued(3), &later(600)), Ok(()));
            take(&mut lock, &queued(3), &later(600)).unwrap_err();
            lock.release(id(1), &later(900));
            assert_eq!(take(&mut lock, &queued(3), &later(901)).ok(), None);
            match is_dead {
                true => {
                    take(&mut lock, &queued(3), &later(1001)).unwrap();
                }
                false => {
                    lock.dequeue(id(102), &later(902));
                    take(&mut lock, &queued(3), &later(903)).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_waiter_with_notifications_queues_behind_others_and_after_a_lost_race() {
        let notified = |n| SqlClaim {
            queues: false,
            ..queued(n)
        };
        let mut lock = LockRows::default();
        take(&mut lock, &notified(1), &later(0)).unwrap();
        take(&mut lock, &notified(2), &later(1)).unwrap_err();
        assert_eq!(lock.queue_len(&later(1)), 0);
        assert!(lock.look(&notified(2), &later(2)).is_err());
        let late = SqlClaim {
            is_notified: true,
            ..notified(2)
        };
        take(&mut lock, &late, &later(3)).unwrap_err();
        assert_eq!(lock.queue_len(&later(3)), 1);
        // It has to queue, and renews its place.
        assert_eq!(lock.look(&notified(3), &later(4)), Ok(()));
        take(&mut lock, &notified(3), &later(4)).unwrap_err();
        assert_eq!(lock.queue_len(&later(4)), 2);
        assert!(lock.look(&notified(2), &later(400)).is_err());
        assert_eq!(lock.look(&notified(2), &later(600)), Ok(()));
    }

    fn reader(n: u8) -> SqlClaim {
        SqlClaim {
            mode: SHARED,
            queues: false,
            ..queued(n)
        }
    }

    fn notified_reader(n: u8) -> SqlClaim {
        SqlClaim {
            is_notified: true,
            ..reader(n)
        }
    }

    #[test]
    fn a_shared_request_that_lost_a_race_is_ahead_of_later_exclusive_waiters() {
        let mut lock = LockRows::default();
        take(&mut lock, &queued(1), &later(0)).unwrap();
        take(&mut lock, &reader(4), &later(1)).unwrap_err();
        assert_eq!(lock.queue_len(&later(1)), 0, "it has lost no race");
        take(&mut lock, &notified_reader(4), &later(2)).unwrap_err();
        take(&mut lock, &queued(3), &later(3)).unwrap_err();
        assert_eq!(lock.queue_len(&later(3)), 2);
        lock.release(id(1), &later(4));
        assert!(take(&mut lock, &queued(3), &later(5)).is_err());
        // Another one comes first, and the exclusive waiter does not keep out the one ahead of it.
        take(&mut lock, &reader(6), &later(6)).unwrap();
        assert!(take(&mut lock, &queued(3), &later(7)).is_err());
        take(&mut lock, &reader(4), &later(8)).unwrap();
        assert_eq!(lock.queue_len(&later(8)), 1);
        assert!(take(&mut lock, &queued(3), &later(9)).is_err());
        // Now it does so.
        assert!(take(&mut lock, &notified_reader(8), &later(10)).is_err());
        assert_eq!(lock.queue_len(&later(10)), 1, "readers have the lock");
        lock.release(id(4), &later(11));
        lock.release(id(6), &later(11));
        take(&mut lock, &queued(3), &later(12)).unwrap();
    }

    #[test]
    fn shared_requests_leave_places_to_exclusive_waiters() {
        let mut lock = LockRows::default();
        take(&mut lock, &queued(1), &later(0)).unwrap();
        for n in 2..40 {
            take(&mut lock, &notified_reader(n), &later(1)).unwrap_err();
        }
        assert_eq!(lock.queue_len(&later(1)), MAX_WAITERS / 2);
        take(&mut lock, &queued(50), &later(1)).unwrap_err();
        assert_eq!(lock.queue_len(&later(1)), MAX_WAITERS / 2 + 1);
    }

    #[test]
    fn exclusive_waiters_leave_places_to_shared_requests() {
        let mut lock = LockRows::default();
        take(&mut lock, &queued(1), &later(0)).unwrap();
        for n in 10..40 {
            take(&mut lock, &queued(n), &later(1)).unwrap_err();
        }
        take(&mut lock, &notified_reader(4), &later(2)).unwrap_err();
        assert_eq!(lock.queue_len(&later(2)), MAX_WAITERS + 1);
        let refused = take(&mut lock, &reader(4), &later(3)).unwrap_err();
        // It polls often enough to renew its place, and exclusive waiters without one seldom.
        assert_eq!(refused.ahead, Some(MAX_WAITERS - 1));
        let no_place = take(&mut lock, &queued(39), &later(3)).unwrap_err();
        assert_eq!(no_place.ahead, Some(MAX_WAITERS + 1));
        // Those that came earlier are served, and another one comes.
        for n in 10..40 {
            lock.dequeue(id(100 + n), &later(4));
        }
        take(&mut lock, &queued(50), &later(5)).unwrap_err();
        assert_eq!(lock.queue_len(&later(5)), 2);
        lock.release(id(1), &later(6));
        assert!(take(&mut lock, &queued(50), &later(7)).is_err());
        take(&mut lock, &reader(4), &later(8)).unwrap();
    }

    #[test]
    fn a_shared_request_that_is_late_keeps_its_place() {
        let mut lock = LockRows::default();
        take(&mut lock, &queued(1), &later(0)).unwrap();
        take(&mut lock, &notified_reader(4), &later(1)).unwrap_err();
        for n in 10..20 {
            take(&mut lock, &queued(n), &later(900)).unwrap_err();
        }
        let polling = SqlClaim {
            is_queued: true,
            ..reader(4)
        };
        // Without a notification, and after its place has expired.
        take(&mut lock, &polling, &later(1100)).unwrap_err();
        lock.release(id(1), &later(1101));
        assert!(take(&mut lock, &queued(10), &later(1102)).is_err());
        take(&mut lock, &polling, &later(1103)).unwrap();
    }

    #[test]
    fn a_waiter_that_is_late_keeps_its_order() {
        let mut lock = LockRows::default();
        take(&mut lock, &queued(1), &later(0)).unwrap();
        take(&mut lock, &queued(2), &later(1)).unwrap_err();
        take(&mut lock, &queued(3), &later(900)).unwrap_err();
        lock.release(id(1), &later(1100));
        // It is passed over, and another waiter comes.
        take(&mut lock, &queued(3), &later(1101)).unwrap();
        lock.evict(&later(1101));
        take(&mut lock, &queued(5), &later(1102)).unwrap_err();
        take(&mut lock, &queued(2), &later(1103)).unwrap_err();
        lock.release(id(3), &later(1104));
        assert!(take(&mut lock, &queued(5), &later(1105)).is_err());
        take(&mut lock, &queued(2), &later(1106)).unwrap();
        lock.release(id(2), &later(1107));
        take(&mut lock, &queued(5), &later(1108)).unwrap();
    }

    #[test]
    fn a_waiter_that_is_late_keeps_its_place_while_others_expired_before() {
        let mut lock = LockRows::default();
        take(&mut lock, &queued(1), &later(0)).unwrap();
        for n in 2..18 {
            take(&mut lock, &queued(n), &later(1)).unwrap_err();
        }
        // The others have died.
        take(&mut lock, &queued(2), &later(600)).unwrap_err();
        // All slots have a waiter, and none of them is in time.
        take(&mut lock, &queued(50), &later(1610)).unwrap_err();
        take(&mut lock, &queued(2), &later(1611)).unwrap_err();
        lock.release(id(1), &later(1612));
        assert!(take(&mut lock, &queued(50), &later(1613)).is_err());
        take(&mut lock, &queued(2), &later(1614)).unwrap();
    }

    #[test]
    fn a_place_from_before_the_clock_was_set_back_keeps_no_client_out() {
        let hour = 3_600_000;
        let mut lock = LockRows::default();
        take(&mut lock, &queued(1), &later(hour)).unwrap();
        take(&mut lock, &queued(2), &later(hour + 1)).unwrap_err();
        lock.release(id(1), &later(hour + 2));
        let ends = Err(LockRefusal::held(later(hour + 1001).moment));
        assert_eq!(lock.look(&claim(3, EXCLUSIVE), &later(hour + 3)), ends);
        assert_eq!(lock.look(&claim(3, EXCLUSIVE), &later(3)), Ok(()));
        take(&mut lock, &claim(3, EXCLUSIVE), &later(3)).unwrap();
    }

    #[test]
    fn a_queue_is_no_holder_and_has_an_end() {
        let mut lock = LockRows::default();
        take(&mut lock, &queued(1), &later(0)).unwrap();
        for n in 2..40 {
            take(&mut lock, &queued(n), &later(1)).unwrap_err();
        }
        assert_eq!(lock.waiters(&later(2)).count(), MAX_WAITERS);
        let no_place = take(&mut lock, &queued(39), &later(2)).unwrap_err();
        assert_eq!(no_place.ahead, Some(MAX_WAITERS));
        let key = polylock_core::LockKey::new("k").unwrap();
        let info = lock.info(&key, &later(2));
        assert_eq!(info.unwrap().holders.len(), 1);
        lock.release(id(1), &later(3));
        assert!(lock.info(&key, &later(4)).is_none());
        // Shared requests need no place.
        take(&mut lock, &claim(50, SHARED), &later(4)).unwrap();
    }
}
