use super::{Case, ViolationKind};
use crate::sim::log::{Write, WriteKind};
use crate::sim::tally::{Tally, count};

impl Case<'_> {
    /// The resource never refuses a holder, and no increment of a holder is lost.
    pub(super) fn judge_writes(&mut self) -> Tally {
        let mut tally = Tally::default();
        let book = self.book;
        for write in &book.writes {
            if !matches!(write.kind, WriteKind::Refused { .. }) {
                continue;
            }
            if self.is_valid(write) {
                let what = format!("#{} had the lock", write.operation);
                self.found(ViolationKind::WriterRefused, write.at, what);
            } else {
                tally.stale_writes += 1;
            }
        }
        for key in &self.world.plan.keys {
            let of_key = book.writes.iter().filter(|write| write.key == *key);
            let counts: Vec<_> = of_key
                .filter_map(|write| match write.kind {
                    WriteKind::Counted { from, to } => Some((write, from, to)),
                    _ => None,
                })
                .collect();
            let lost: Vec<_> = counts
                .iter()
                .filter(|(_, from, to)| *to != from + 1)
                .collect();
            // One write of somebody who had lost the lock spoils the count for the others.
            let clean = counts.iter().all(|(write, ..)| self.is_valid(write));
            tally.lost_increments += count(lost.len());
            if let Some((write, from, to)) = lost.first().filter(|_| clean) {
                let what = format!("#{} wrote {to} over {from}", write.operation);
                let at = write.at;
                self.found(ViolationKind::LostIncrement, at, what);
            }
        }
        tally
    }

    /// Whether the writer had the lock when its write arrived.
    fn is_valid(&self, write: &Write) -> bool {
        let operation = &self.book.operations[write.operation];
        operation
            .valid_until()
            .is_some_and(|until| write.at < until)
    }
}
