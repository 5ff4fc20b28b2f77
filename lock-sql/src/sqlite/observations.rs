use std::collections::HashMap;
use std::time::Duration;

use polylock_core::engine::{LeaseId, Moment, Mutex};

use super::expiry::{Expiry, end_of_place, expiry};
use crate::table::{LockRow, QUEUE, ReadContext, SlotHolder};

/// Observations of leases that no clock can judge.
///
/// Each renewal changes the row. If a row stays the same for a whole ttl, by the clock of this process,
/// it was not renewed in that time, and was written before its first observation. Nothing is stored, so
/// another process, or this one after a restart, starts again.
#[derive(Default)]
pub(super) struct Observations(Mutex<HashMap<LeaseId, Sight>>);

#[derive(Clone, Copy, Debug)]
struct Sight {
    expires: Moment,
    ttl: Duration,
    since: Moment,
    last: Moment,
}

impl Observations {
    /// Sets the end of the lease by the clock of this process, in a row that was read before.
    pub(super) fn judge(&self, row: &mut LockRow, ctx: &ReadContext) {
        let (changed_at, is_place) = (row.changed_at, row.slot >= QUEUE);
        let Some(holder) = &mut row.holder else {
            return;
        };
        let end = match expiry(holder, changed_at, ctx) {
            Expiry::Doubtful if is_place => end_of_place(holder.ttl, changed_at, ctx),
            Expiry::Doubtful => self.observed(holder, ctx.moment),
            Expiry::Ended => ENDED,
            Expiry::Until(end) => end,
        };
        holder.end = Some(end);
    }

    /// When a lease ends unless its row changes.
    fn observed(&self, holder: &SlotHolder, now: Moment) -> Moment {
        let mut sights = self.0.lock();
        if sights.len() >= MAX_SIGHTS && !sights.contains_key(&holder.id) {
            let oldest = sights.iter().min_by_key(|(_, sight)| sight.last);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                sights.remove(&oldest);
            }
        }
        let fresh = Sight {
            expires: holder.expires,
            ttl: holder.ttl,
            since: now,
            last: now,
        };
        let sight = sights.entry(holder.id).or_insert(fresh);
        if (sight.expires, sight.ttl) != (holder.expires, holder.ttl) {
            *sight = fresh;
        }
        sight.last = now;
        sight.since + sight.ttl
    }
}

/// Earlier than every time that a clock shows.
const ENDED: Moment = Moment::from_nanos(0);

/// The observation of a lease restarts if so many others were seen since the lease was.
const MAX_SIGHTS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::LockRows;
    use crate::table::testing::{EXCLUSIVE, TTL, at, claim, holder, now};

    /// A lease whose clock is not known.
    fn row(n: u8, expires: u64) -> LockRow {
        let mut row = LockRow::new(0);
        let mut holder = holder(n, expires);
        holder.shift = None;
        row.holder = Some(holder);
        row
    }

    fn is_live(seen: &Observations, row: &LockRow, seconds: u64) -> bool {
        let (mut row, ctx) = (row.clone(), now(seconds));
        seen.judge(&mut row, &ctx);
        row.held_leases(&ctx).is_some()
    }

    #[test]
    fn a_lease_in_doubt_ends_when_its_row_was_the_same_for_one_ttl() {
        let seen = Observations::default();
        let first = row(1, 5);
        assert!(is_live(&seen, &first, 100));
        assert!(is_live(&seen, &first, 100 + TTL - 1));
        // It was renewed by a clock that is far behind.
        let renewed = row(1, 6);
        assert!(is_live(&seen, &renewed, 100 + TTL));
        assert!(is_live(&seen, &renewed, 100 + 2 * TTL - 1));
        assert!(!is_live(&seen, &renewed, 100 + 2 * TTL));
        let another = row(2, 6);
        assert!(is_live(&seen, &another, 100 + 2 * TTL));
    }

    #[test]
    fn a_clock_that_can_be_compared_needs_no_observation() {
        let seen = Observations::default();
        let mut row = LockRow::new(0);
        row.holder = Some(holder(1, 50));
        assert!(is_live(&seen, &row, 49));
        assert!(!is_live(&seen, &row, 50));
        assert!(seen.0.lock().is_empty());
    }

    /// Each request comes from a process that has just started, and does not wait.
    #[test]
    fn the_place_of_a_dead_waiter_in_doubt_ends_for_new_processes() {
        let mut place = row(1, 5);
        (place.slot, place.changed_at) = (QUEUE, now(100).unix);
        place.holder.as_mut().unwrap().ttl = Duration::from_secs(1);
        let is_granted = |ctx: &ReadContext| {
            let (mut place, mut lock) = (place.clone(), LockRows::default());
            Observations::default().judge(&mut place, ctx);
            lock.load(place);
            lock.take(&claim(2, EXCLUSIVE), ctx).is_ok()
        };
        let mut before = now(101);
        before.unix -= 1;
        assert!(!is_granted(&before), "it is the turn of the waiter");
        assert!(is_granted(&now(101)));
        // The wall clock was set back.
        before.unix = now(90).unix;
        assert!(is_granted(&before));
    }

    #[test]
    fn leases_that_are_seen_least_are_forgotten_when_there_are_too_many() {
        let seen = Observations::default();
        let mut lease = row(1, 5);
        for n in 0..u128::try_from(MAX_SIGHTS).unwrap() + 5 {
            lease.holder.as_mut().unwrap().id = LeaseId::from_bytes(n.to_be_bytes());
            seen.judge(&mut lease, &now(100 + u64::try_from(n).unwrap()));
        }
        let sights = seen.0.lock();
        assert_eq!(sights.len(), MAX_SIGHTS);
        assert!(sights.values().all(|sight| sight.last >= at(105)));
    }
}
