use std::time::Duration;

use super::row::{LockRow, ReadContext};

/// What a purge does with some rows that follow each other in the table.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct PurgePlan {
    /// Rows to delete, by their place among those that were looked at.
    pub(crate) deleted: Vec<usize>,
    /// How many rows need not be looked at again in this round.
    pub(crate) passed: usize,
    /// The largest token of the deleted rows.
    pub(crate) floor: u64,
}

/// Picks the idle ones of `rows`; `is_end` says that the table has no more.
///
/// The row of the lock itself goes last, a round after those of its other slots.
pub(crate) fn purge(
    rows: &[(Vec<u8>, LockRow)],
    is_end: bool,
    ctx: &ReadContext,
    retention: Duration,
) -> PurgePlan {
    let mut purge = PurgePlan {
        passed: rows.len(),
        ..PurgePlan::default()
    };
    for (at, (key, row)) in rows.iter().enumerate() {
        if !row.is_idle(ctx, retention) {
            continue;
        }
        match rows.get(at + 1) {
            Some((next, _)) if row.slot == 0 && next == key => continue,
            // Whether it has other slots is seen when the next round begins with it.
            None if row.slot == 0 && !is_end && at > 0 => {
                purge.passed = at;
                continue;
            }
            None if row.slot == 0 && !is_end => continue,
            _ => {}
        }
        purge.floor = purge.floor.max(row.last_token);
        purge.deleted.push(at);
    }
    purge
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::testing::{holder, now};

    const DAY: Duration = Duration::from_secs(86_400);
    const LATE: u64 = 200_000;

    fn rows(of: &[(&str, u32, u64)]) -> Vec<(Vec<u8>, LockRow)> {
        let row = |(key, slot, last_token): &(&str, u32, u64)| {
            let mut row = LockRow::new(*slot);
            row.last_token = *last_token;
            row.changed_at = now(0).unix;
            (key.as_bytes().to_vec(), row)
        };
        of.iter().map(row).collect()
    }

    fn deleted(rows: &[(Vec<u8>, LockRow)], is_end: bool) -> (Vec<usize>, usize, u64) {
        let plan = purge(rows, is_end, &now(LATE), DAY);
        (plan.deleted, plan.passed, plan.floor)
    }

    #[test]
    fn idle_rows_go_and_their_largest_token_stays() {
        let rows = rows(&[("a", 0, 7), ("b", 0, 9), ("c", 0, 8)]);
        assert_eq!(deleted(&rows, true), (vec![0, 1, 2], 3, 9));
    }

    #[test]
    fn rows_that_are_held_or_were_used_lately_stay() {
        let mut rows = rows(&[("a", 0, 7), ("b", 0, 9), ("c", 0, 8)]);
        rows[0].1.holder = Some(holder(1, LATE + 1));
        rows[1].1.changed_at = now(LATE - 100).unix;
        assert_eq!(deleted(&rows, true), (vec![2], 3, 8));
    }

    #[test]
    fn a_lock_goes_after_its_slots() {
        let mut rows = rows(&[("a", 0, 7), ("a", 1, 0), ("a", 2, 0)]);
        rows[2].1.holder = Some(holder(1, LATE + 1));
        assert_eq!(deleted(&rows, true), (vec![1], 3, 0));
    }

    #[test]
    fn a_lock_whose_slots_are_out_of_sight_is_looked_at_again() {
        let rows = rows(&[("a", 0, 7), ("b", 0, 9)]);
        assert_eq!(deleted(&rows, false), (vec![0], 1, 7));
    }
}
