//! Whether a lease has ended, by all clocks of holder and observer.
//!
//! A boot id does not prove a reboot: containers may have their own. A clock does not identify the
//! machine: time namespaces shift it. In doubt, a client observes the row for one ttl.

use std::time::Duration;

use polylock_core::engine::{Moment, is_mutant};

use crate::table::{ReadContext, SlotHolder};

/// What the clocks say about a lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Expiry {
    /// They contradict each other, or cannot be compared.
    Doubtful,
    Ended,
    /// It ends then, by the clock of the scene.
    Until(Moment),
}

/// The end of a lease whose row was written at `changed_at`, in microseconds of the wall clock.
///
/// The boot clock of a kernel never goes back. It is the same for all processes of the kernel, after
/// subtracting the shift of a time namespace. With the boot id of the holder it decides alone. Without
/// it, two kernels or two containers may have written the row, and the wall clock has to agree.
pub(super) fn expiry(holder: &SlotHolder, changed_at: u64, ctx: &ReadContext) -> Expiry {
    if is_mutant("sqlite-boot-id") {
        return match holder.boot == ctx.boot {
            true => Expiry::Until(holder.expires),
            false => Expiry::Ended,
        };
    }
    let (Some(its_shift), Some(shift)) = (holder.shift, ctx.shift) else {
        return Expiry::Doubtful;
    };
    let by_kernel = |moment: Moment, shift| i128::from(moment.as_nanos()) - i128::from(shift);
    let now = by_kernel(ctx.moment, shift);
    let expires = by_kernel(holder.expires, its_shift);
    let ttl = i128::try_from(holder.ttl.as_nanos()).unwrap_or(i128::MAX);
    let same_boot = holder.boot == ctx.boot;
    let (written_wall, wall) = (i128::from(changed_at) * 1_000, i128::from(ctx.unix) * 1_000);
    if now < expires - ttl {
        // A kernel that has run for so short a time cannot have written it.
        let before_boot = written_wall < wall - now;
        return match !same_boot && before_boot {
            true => Expiry::Ended,
            false => Expiry::Doubtful,
        };
    }
    if now < expires {
        let end = u64::try_from(expires + i128::from(shift)).unwrap_or(u64::MAX);
        return Expiry::Until(Moment::from_nanos(end));
    }
    match same_boot || wall >= written_wall + ttl {
        true => Expiry::Ended,
        false => Expiry::Doubtful,
    }
}

/// The end of the place of a waiter whose clock cannot be compared: by the wall clock, which all
/// processes of the machine share.
///
/// A place decides the order only. So a step of that clock may cost a waiter its turn, and a process that
/// observes nothing need not respect the place of a dead waiter forever.
pub(super) fn end_of_place(ttl: Duration, changed_at: u64, ctx: &ReadContext) -> Moment {
    let end = Duration::from_micros(changed_at).saturating_add(ttl);
    ctx.moment + end.saturating_sub(Duration::from_micros(ctx.unix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::BootId;
    use crate::table::testing::{TTL, at, holder, now};

    const SECOND: i64 = 1_000_000_000;
    const OTHER: BootId = BootId([8; 16]);

    /// A lease that was written so many seconds after boot, and the wall clock of that moment.
    fn lease(written: u64) -> (SlotHolder, u64) {
        (holder(1, written + TTL), now(written).unix)
    }

    #[test]
    fn a_lease_of_this_boot_ends_by_the_boot_clock_alone() {
        let (holder, changed_at) = lease(100);
        for wall in [0, now(110).unix, u64::MAX / 2_000] {
            let mut ctx = now(129);
            ctx.unix = wall;
            assert_eq!(expiry(&holder, changed_at, &ctx), Expiry::Until(at(130)));
            ctx.moment = at(130);
            assert_eq!(
                expiry(&holder, changed_at, &ctx),
                Expiry::Ended,
                "the wall clock is at {wall}"
            );
        }
    }

    #[test]
    fn with_another_boot_id_the_wall_clock_has_to_agree_to_an_end() {
        let (mut holder, changed_at) = lease(100);
        holder.boot = OTHER;
        let mut ctx = now(1_000);
        for (wall, expected) in [(129, Expiry::Doubtful), (130, Expiry::Ended)] {
            ctx.unix = now(wall).unix;
            assert_eq!(
                expiry(&holder, changed_at, &ctx),
                expected,
                "the wall clock is at {wall}"
            );
        }
    }

    #[test]
    fn the_shift_of_a_time_namespace_is_taken_off() {
        for (its_shift, shift) in [(86_400, 0), (0, 86_400), (50, -60), (-60, 50)] {
            for same_boot in [true, false] {
                let (mut holder, changed_at) = lease(1_000);
                if !same_boot {
                    holder.boot = OTHER;
                }
                let shifted = |seconds: u64, by: i64| at(seconds.checked_add_signed(by).unwrap());
                holder.expires = shifted(1_030, its_shift);
                holder.shift = Some(its_shift * SECOND);
                for (seconds, end) in [(1_000, false), (1_029, false), (1_030, true)] {
                    let mut ctx = now(seconds);
                    ctx.moment = shifted(seconds, shift);
                    ctx.shift = Some(shift * SECOND);
                    let expected = match end {
                        true => Expiry::Ended,
                        false => Expiry::Until(shifted(1_030, shift)),
                    };
                    let found = expiry(&holder, changed_at, &ctx);
                    assert_eq!(found, expected, "{its_shift} {shift} {seconds}");
                }
            }
        }
    }

    #[test]
    fn a_reboot_that_all_clocks_show_ends_a_lease_at_once() {
        let (mut holder, changed_at) = lease(100_000);
        holder.boot = OTHER;
        let mut rebooted = now(20);
        // Off for a minute; the boot clock begins again.
        rebooted.unix = changed_at + 80_000_000;
        assert_eq!(expiry(&holder, changed_at, &rebooted), Expiry::Ended);
        // The wall clock has been set back meanwhile.
        rebooted.unix = changed_at - 3_600_000_000;
        assert_eq!(expiry(&holder, changed_at, &rebooted), Expiry::Doubtful);
        // The machine has the same boot id each time: the lease comes from the future.
        rebooted.unix = changed_at + 80_000_000;
        holder.boot = rebooted.boot;
        assert_eq!(expiry(&holder, changed_at, &rebooted), Expiry::Doubtful);
    }

    #[test]
    fn a_reboot_after_a_shorter_run_ends_a_lease_within_a_ttl() {
        let (mut holder, changed_at) = lease(100);
        holder.boot = OTHER;
        let after = |seconds: u64| {
            let mut ctx = now(seconds);
            ctx.unix = changed_at + (seconds + 60) * 1_000_000;
            expiry(&holder, changed_at, &ctx)
        };
        assert_eq!(after(40), Expiry::Ended);
        assert_eq!(after(110), Expiry::Until(at(130)));
        assert_eq!(after(131), Expiry::Ended);
    }

    #[test]
    fn clocks_that_cannot_be_compared_end_no_lease() {
        let (holder, changed_at) = lease(100);
        let (mut unknown, mut ctx) = (holder.clone(), now(10_000));
        unknown.shift = None;
        assert_eq!(expiry(&unknown, changed_at, &ctx), Expiry::Doubtful);
        ctx.shift = None;
        assert_eq!(expiry(&holder, changed_at, &ctx), Expiry::Doubtful);
    }
}
