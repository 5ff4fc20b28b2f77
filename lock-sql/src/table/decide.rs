use std::num::NonZeroU32;

use polylock_core::Mode;
use polylock_core::engine::Moment;

use super::LockRefusal;
use super::lock_rows::LockRows;
use super::row::{ReadContext, SlotHolder};

impl LockRows {
    /// The slot for a holder in `mode`, or the holder in its way.
    pub(super) fn decide(&self, mode: Mode, ctx: &ReadContext) -> Result<u32, LockRefusal> {
        match mode {
            Mode::Shared => self.join(ctx, |slot, holder| slot == 0 || holder.permits != 0),
            Mode::Permit { limit } => self.permit(limit, ctx),
            // A mode that this version does not know excludes all others.
            _ => match self
                .held_leases(ctx)
                .map(|(_, holder)| holder.ends(ctx))
                .max()
            {
                Some(until) => Err(LockRefusal::held(until)),
                None => Ok(0),
            },
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
    pub(super) fn free_slot(&self, ctx: &ReadContext) -> u32 {
        let mut slot = 1;
        for (taken, _) in self.held_leases(ctx).filter(|(taken, _)| *taken > 0) {
            if taken != slot {
                break;
            }
            slot += 1;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::testing::{EXCLUSIVE, SHARED, at, holder, lock, now, permit};

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
}
