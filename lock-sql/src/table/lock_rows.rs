use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use polylock_core::admin::{LockInfo, Record};
use polylock_core::engine::{LeaseId, Moment};
use polylock_core::{LeaseState, LockKey, LostReason, Mode, Released, RenewalRequest};

use super::queue::FAR;
use super::row::{Broken, Claimed, LockRow, QUEUE, RECORD, ReadContext, SlotHolder};
use super::{LockRefusal, SqlClaim, TokenRange, is_sharing};

/// The rows of one key, and what each operation makes of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockRows {
    rows: BTreeMap<u32, LockRow>,
    changed: BTreeSet<u32>,
    stored: bool,
}

impl LockRows {
    /// Takes in a row that was stored.
    pub(crate) fn load(&mut self, row: LockRow) {
        self.rows.insert(row.slot, row);
        self.stored = true;
    }

    /// Whether the table gets its first row for the key.
    pub(crate) fn is_new(&self) -> bool {
        !self.stored && !self.changed.is_empty()
    }

    pub(crate) fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    pub(crate) fn changed(&self) -> impl Iterator<Item = &LockRow> {
        self.changed.iter().filter_map(|slot| self.rows.get(slot))
    }

    /// Leaves a changed row out of what is written.
    pub(crate) fn leave_unwritten(&mut self, slot: u32) {
        self.changed.remove(&slot);
    }

    /// All rows as they are now, in the order of their slots.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &LockRow> {
        self.rows.values()
    }

    /// Clears the slots of shared holders that have expired. The place of a waiter stays: a waiter that is
    /// only late comes back to it.
    pub(crate) fn evict(&mut self, ctx: &ReadContext) {
        let shared = self.rows.range(1..QUEUE).map(|(_, row)| row);
        let ended = shared.filter(|row| row.holder.is_some() && row.held_leases(ctx).is_none());
        let ended: Vec<_> = ended.map(|row| row.slot).collect();
        for slot in ended {
            self.row_mut(slot, ctx).holder = None;
        }
    }

    /// The holders, in the order of their slots.
    pub(super) fn held_leases(
        &self,
        ctx: &ReadContext,
    ) -> impl Iterator<Item = (u32, &SlotHolder)> {
        let (rows, ctx) = (self.rows.range(..QUEUE), *ctx);
        rows.filter_map(move |(slot, row)| Some((*slot, row.held_leases(&ctx)?)))
    }

    /// The waiters whose places have not expired.
    pub(super) fn waiters(&self, ctx: &ReadContext) -> impl Iterator<Item = (u32, &SlotHolder)> {
        let (places, ctx) = (self.places(ctx), *ctx);
        places.filter(move |(_, waiter)| waiter.ends(&ctx) > ctx.moment)
    }

    /// The places in the queue, with those of waiters that are late or have died.
    pub(super) fn places(&self, ctx: &ReadContext) -> impl Iterator<Item = (u32, &SlotHolder)> {
        let rows = self.rows.range(QUEUE..);
        let places = rows.filter_map(|(slot, row)| Some((*slot, row.holder.as_ref()?)));
        // A place that lasts longer was written before the clock was set back.
        let (ctx, last) = (*ctx, ctx.moment + FAR);
        places.filter(move |(_, waiter)| waiter.ends(&ctx) <= last)
    }

    /// Acquires the lock if possible.
    ///
    /// A repeated call with the same id acquires it again, with a larger token.
    pub(crate) fn take(
        &mut self,
        claim: &SqlClaim,
        ctx: &ReadContext,
    ) -> Result<TokenRange, LockRefusal> {
        if self.find(claim.id).is_some() {
            self.release(claim.id, ctx);
        }
        let slot = match self.decide_for(claim, ctx) {
            Ok(slot) => slot,
            Err(refusal) => {
                if claim.waits
                    && self.is_kept_by_many(claim.mode, ctx)
                    // Otherwise it would keep out a waiter that is ahead of it.
                    && self.check_turn(claim.ticket, ctx).is_ok()
                    && let Some(now) = ctx.kernel_moment()
                {
                    let (boot, until) = (ctx.boot, now + CLAIM);
                    let lock = self.row_mut(0, ctx);
                    // The last exclusive holder has expired or released.
                    lock.holder = None;
                    lock.claimed = Some(Claimed { boot, until });
                }
                return Err(self.with_turn(refusal, claim, ctx));
            }
        };
        if let Some(ticket) = claim.ticket {
            self.dequeue(ticket, ctx);
        }
        let permits = match claim.mode {
            Mode::Permit { limit } => limit.get(),
            _ => 0,
        };
        // Only an exclusive lock is handed over inside a process.
        let count = if slot == 0 { TOKENS_AT_ONCE } else { 1 };
        let tokens = self.draw(count, ctx);
        self.row_mut(slot, ctx).set_holder(SlotHolder {
            id: claim.id,
            token: tokens.next,
            permits,
            boot: ctx.boot,
            shift: ctx.shift,
            expires: ctx.moment + claim.ttl,
            end: None,
            ttl: claim.ttl,
            label: claim.label.clone(),
            since: ctx.unix,
        });
        Ok(tokens)
    }

    /// Draws a token for a transaction that has the lock until its end.
    pub(crate) fn pass(&mut self, ctx: &ReadContext) -> Result<u64, LockRefusal> {
        self.decide(Mode::Exclusive, ctx)?;
        Ok(self.draw(1, ctx).next)
    }

    /// The slot for a holder in `mode`, or the holder in its way.
    fn decide(&self, mode: Mode, ctx: &ReadContext) -> Result<u32, LockRefusal> {
        match mode {
            Mode::Shared => self.join(ctx, |slot, holder| slot == 0 || holder.permits != 0),
            Mode::Permit { limit } => self.permit(limit, ctx),
            // A mode that this version does not know excludes all others.
            _ => {
                let ends = self.held_leases(ctx).map(|(_, holder)| holder.ends(ctx));
                ends.max()
                    .map_or(Ok(0), |until| Err(LockRefusal::held(until)))
            }
        }
    }

    fn permit(&self, limit: NonZeroU32, ctx: &ReadContext) -> Result<u32, LockRefusal> {
        let slot = self.join(ctx, |slot, holder| slot == 0 || holder.permits == 0)?;
        let mut first = Moment::NEVER;
        let mut count = 0;
        for (_, holder) in self.held_leases(ctx) {
            first = first.min(holder.ends(ctx));
            count += 1;
        }
        if count < limit.get() {
            Ok(slot)
        } else {
            Err(LockRefusal::held(first))
        }
    }

    /// Admits a shared holder, unless a waiter claims the lock for itself.
    fn join(
        &self,
        ctx: &ReadContext,
        in_the_way: impl Fn(u32, &SlotHolder) -> bool,
    ) -> Result<u32, LockRefusal> {
        let others = self
            .held_leases(ctx)
            .filter(|(slot, holder)| in_the_way(*slot, holder));
        let until = others.map(|(_, holder)| holder.ends(ctx)).max();
        match until.or_else(|| self.claimed(ctx)) {
            Some(until) => Err(LockRefusal::held(until)),
            None => Ok(self.free_slot(ctx)),
        }
    }

    /// The lowest slot for one of several holders.
    fn free_slot(&self, ctx: &ReadContext) -> u32 {
        let mut slot = 1;
        for (taken, _) in self.held_leases(ctx).filter(|(taken, _)| *taken > 0) {
            if taken != slot {
                break;
            }
            slot += 1;
        }
        slot
    }

    /// Where a holder can go whose turn it is.
    fn decide_for(&self, claim: &SqlClaim, ctx: &ReadContext) -> Result<u32, LockRefusal> {
        let slot = self.decide(claim.mode, ctx)?;
        if slot == 0 {
            self.check_turn(claim.ticket, ctx)?;
        }
        Ok(slot)
    }

    /// Whether a waiter should try: the lock is free, another shared holder can be admitted, or the
    /// waiter would lose its place in the queue.
    pub(crate) fn look(&self, claim: &SqlClaim, ctx: &ReadContext) -> Result<(), LockRefusal> {
        let decided = self.decide_for(claim, ctx).map(drop);
        let kept_out = self.claimed(ctx).map(|until| until.since(ctx.moment));
        // Without a clock to compare, no claim can be made.
        let lapses = ctx.shift.is_some() && kept_out.is_none_or(|left| left < CLAIM / 2);
        if lapses && self.is_kept_by_many(claim.mode, ctx) || self.is_ticket_due(claim, ctx) {
            return Ok(());
        }
        decided.map_err(|refusal| self.with_turn(refusal, claim, ctx))
    }

    /// Whether an exclusive waiter waits for shared holders.
    pub(crate) fn is_kept_by_many(&self, mode: Mode, ctx: &ReadContext) -> bool {
        let first = self.held_leases(ctx).next();
        !is_sharing(mode) && first.is_some_and(|(slot, _)| slot > 0)
    }

    /// Until when no shared holder may join.
    fn claimed(&self, ctx: &ReadContext) -> Option<Moment> {
        let until = self.rows.get(&0).and_then(|row| row.claimed)?.until;
        let now = ctx.kernel_moment()?;
        // One that is further away was made before a reboot.
        let is_near = until > now && until <= now + CLAIM;
        is_near.then(|| ctx.moment + until.since(now))
    }

    /// Renews a lease that has not ended.
    pub(crate) fn renew(&mut self, request: &RenewalRequest, ctx: &ReadContext) -> LeaseState {
        match self.held_slot(request.id, ctx) {
            Ok(slot) => {
                if let Some(holder) = &mut self.row_mut(slot, ctx).holder {
                    // A clock that was set back must not extend the lease beyond its former length.
                    let end = holder.ends(ctx).min(ctx.moment + holder.ttl);
                    let expires = request.renewed_end(ctx.moment, end);
                    (holder.boot, holder.shift) = (ctx.boot, ctx.shift);
                    (holder.expires, holder.end) = (expires, None);
                    // An observer that cannot compare the clocks observes the row for this time.
                    holder.ttl = expires.since(ctx.moment);
                }
                LeaseState::Held
            }
            Err(reason) => LeaseState::Lost(reason),
        }
    }

    /// Frees the slot of `id`, and no other one.
    pub(crate) fn release(&mut self, id: LeaseId, ctx: &ReadContext) -> Released {
        let Some(slot) = self.find(id) else {
            return Released::AlreadyLost;
        };
        let in_time = self.held_slot(id, ctx).is_ok();
        self.row_mut(slot, ctx).holder = None;
        if in_time {
            Released::Clean
        } else {
            Released::AlreadyLost
        }
    }

    /// Makes an exclusive holder a shared one with the same token.
    pub(crate) fn downgrade(&mut self, id: LeaseId, ctx: &ReadContext) -> LeaseState {
        match self.held_slot(id, ctx) {
            Ok(0) => {
                let holder = self.row_mut(0, ctx).holder.take();
                let slot = self.free_slot(ctx);
                self.row_mut(slot, ctx).holder = holder;
                LeaseState::Held
            }
            // Asked a second time.
            Ok(_) => LeaseState::Held,
            Err(reason) => LeaseState::Lost(reason),
        }
    }

    /// Reserves more tokens for an exclusive holder; `None` if it is none.
    pub(crate) fn reserve(&mut self, id: LeaseId, ctx: &ReadContext) -> Option<TokenRange> {
        let held = self.held_slot(id, ctx) == Ok(0);
        held.then(|| self.draw(TOKENS_AT_ONCE, ctx))
    }

    /// Gives the exclusive lease `id` the id of a renewal and a token of its own, and renews it. Returns
    /// the token, or `None` if the lease is not held.
    ///
    /// A repeated call with the same renewal returns the same token.
    pub(crate) fn adopt(
        &mut self,
        id: LeaseId,
        renewal: &RenewalRequest,
        ctx: &ReadContext,
    ) -> Option<u64> {
        if self.held_slot(renewal.id, ctx) != Ok(0) {
            if self.held_slot(id, ctx) != Ok(0) {
                return None;
            }
            let token = self.draw(1, ctx).next;
            let holder = self.row_mut(0, ctx).holder.as_mut()?;
            (holder.id, holder.token) = (renewal.id, token);
        }
        self.renew(renewal, ctx);
        let holder = self.rows.get(&0)?.holder.as_ref()?;
        Some(holder.token)
    }

    /// The record of a holder, until its retention ends by the wall clock.
    pub(crate) fn record(&self, ctx: &ReadContext) -> Option<&Record> {
        let row = self.rows.get(&RECORD)?;
        row.record.as_ref().filter(|_| row.changed_at > ctx.unix)
    }

    /// Stores a record, unless one with a larger token is stored; returns whether it did.
    pub(crate) fn write_record(
        &mut self,
        record: &Record,
        keep: Duration,
        ctx: &ReadContext,
    ) -> bool {
        let stored = self.record(ctx);
        let is_stale = stored.is_some_and(|stored| stored.token > record.token);
        if !is_stale {
            let keep = u64::try_from(keep.as_micros()).unwrap_or(u64::MAX);
            let row = self.row_mut(RECORD, ctx);
            row.record = Some(record.clone());
            row.changed_at = ctx.unix.saturating_add(keep);
        }
        !is_stale
    }

    /// Takes the lock from all holders, and records whose it was.
    pub(crate) fn break_all(&mut self, reason: &str, ctx: &ReadContext) {
        let slots: Vec<_> = self
            .held_leases(ctx)
            .map(|(slot, holder)| (slot, holder.id))
            .collect();
        for (slot, id) in slots {
            let row = self.row_mut(slot, ctx);
            row.holder = None;
            row.broken = Some(Broken {
                id,
                reason: reason.to_owned(),
            });
        }
    }

    /// The administrative view; `None` if the lock is free.
    pub(crate) fn info(&self, key: &LockKey, ctx: &ReadContext) -> Option<LockInfo> {
        let (slot, first) = self.held_leases(ctx).next()?;
        let mode = match NonZeroU32::new(first.permits) {
            _ if slot == 0 => Mode::Exclusive,
            Some(limit) => Mode::Permit { limit },
            None => Mode::Shared,
        };
        let holders = self.held_leases(ctx).map(|(_, holder)| holder.info(ctx));
        Some(LockInfo::new(key.clone(), mode, holders.collect()))
    }

    pub(super) fn find(&self, id: LeaseId) -> Option<u32> {
        self.rows
            .values()
            .find(|row| row.is_held_by(id))
            .map(|row| row.slot)
    }

    /// Whether a lease ends at this moment or later.
    pub(crate) fn lasts_until(&self, id: LeaseId, end: Moment) -> bool {
        let mut holders = self.rows.values().filter_map(|row| row.holder.as_ref());
        holders.any(|it| it.id == id && it.expires >= end)
    }

    /// The slot of a lease that has not ended, or how it ended.
    pub(crate) fn held_slot(&self, id: LeaseId, ctx: &ReadContext) -> Result<u32, LostReason> {
        match self.rows.values().find(|row| row.is_held_by(id)) {
            Some(row) if row.held_leases(ctx).is_some() => Ok(row.slot),
            Some(_) => Err(LostReason::Expired),
            None => {
                let broken =
                    |row: &LockRow| row.broken.as_ref().is_some_and(|broken| broken.id == id);
                let broken = self.rows.values().any(broken);
                Err(if broken {
                    LostReason::Broken
                } else {
                    LostReason::Stolen
                })
            }
        }
    }

    /// Draws tokens larger than all earlier ones, even if the row was deleted.
    fn draw(&mut self, count: u64, ctx: &ReadContext) -> TokenRange {
        let lock = self.row_mut(0, ctx);
        // SQLite takes the time of the change for the time when the lease was written.
        if lock.held_leases(ctx).is_none() {
            lock.holder = None;
        }
        let next = lock
            .last_token
            .max(ctx.floor)
            .saturating_add(1)
            .max(ctx.unix);
        lock.last_token = next.saturating_add(count - 1);
        TokenRange {
            next,
            last: lock.last_token,
        }
    }

    pub(super) fn row_mut(&mut self, slot: u32, ctx: &ReadContext) -> &mut LockRow {
        self.changed.insert(slot);
        let row = self.rows.entry(slot).or_insert_with(|| LockRow::new(slot));
        row.changed_at = ctx.unix;
        row
    }
}

/// How many tokens an exclusive holder gets, for itself and for hand-overs in its process.
pub(crate) const TOKENS_AT_ONCE: u64 = 64;

/// How long the claim of an exclusive waiter keeps out new shared holders. The waiter polls sooner
/// than half of that, and renews the claim when half is over.
pub(crate) const CLAIM: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::testing::{EXCLUSIVE, SHARED, at, claim, holder, lock, now, permit};

    const HELD: fn(u64) -> Result<u32, LockRefusal> = |until| Err(LockRefusal::held(at(until)));
    const FREE: fn(u32) -> Result<u32, LockRefusal> = Ok;

    #[test]
    fn permits_are_counted_and_the_first_to_end_makes_room() {
        let two = [
            (1, holder(1, 50).with_permits(2)),
            (2, holder(2, 40).with_permits(2)),
        ];
        let lock = lock(&two);
        assert_eq!(lock.decide(permit(2), &now(10)), HELD(40));
        assert_eq!(lock.decide(permit(2), &now(40)), FREE(2));
        assert_eq!(lock.decide(SHARED, &now(10)), HELD(50));
        assert_eq!(lock.decide(EXCLUSIVE, &now(10)), HELD(50));
    }

    #[test]
    fn slots_that_ended_are_used_again() {
        let lock = lock(&[(1, holder(1, 90)), (2, holder(2, 20)), (3, holder(3, 90))]);
        assert_eq!(lock.decide(SHARED, &now(10)), FREE(4));
        assert_eq!(lock.decide(SHARED, &now(20)), FREE(2));
    }

    #[test]
    fn leases_of_another_boot_have_ended() {
        let lock = lock(&[(0, holder(1, 50).of_another_boot())]);
        assert_eq!(lock.decide(EXCLUSIVE, &now(10)), FREE(0));
    }

    #[test]
    fn a_token_leaves_no_exclusive_holder_that_has_ended() {
        let draws: [fn(&mut LockRows); 3] = [
            |lock| assert!(lock.take(&claim(2, SHARED), &now(20)).is_ok()),
            |lock| assert!(lock.take(&claim(2, permit(2)), &now(20)).is_ok()),
            |lock| assert!(lock.pass(&now(20)).is_ok()),
        ];
        for draw in draws {
            let mut lock = lock(&[(0, holder(1, 20))]);
            draw(&mut lock);
            assert_eq!(lock.rows[&0].holder, None);
        }
        let mut lock = lock(&[(0, holder(1, 20))]);
        lock.reserve(LeaseId::from_bytes([1; 16]), &now(19))
            .unwrap();
        assert_eq!(lock.rows[&0].holder, Some(holder(1, 20)));
    }
}
