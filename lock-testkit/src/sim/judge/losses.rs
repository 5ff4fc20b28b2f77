use std::time::Duration;

use lock_core::LostReason;

use super::{Case, ViolationKind};
use crate::sim::log::Operation;
use crate::sim::plan::MOST_DRIFT;

impl Case<'_> {
    /// Guards are not valid for longer than the lease on the store, losses are signaled in time,
    /// and a loss is final.
    pub(super) fn judge_losses(&mut self) {
        let book = self.book;
        for operation in &book.operations {
            if !self.world.forgetful {
                self.judge_validity(operation);
                self.judge_tries(operation);
            }
            self.judge_signal(operation);
            self.judge_looks(operation);
        }
    }

    fn judge_validity(&mut self, operation: &Operation) {
        for validity in &operation.validity {
            if validity.expiry.is_none_or(|expiry| validity.until > expiry) {
                let what = format!("#{}: {validity:?}", operation.number);
                self.found(ViolationKind::BeyondExpiry, validity.at, what);
            }
        }
        let Some(until) = operation.valid_until() else {
            return;
        };
        let ended = self.tenure_of(operation).map(|(_, _, until)| *until);
        if ended.is_none_or(|ended| until > ended) {
            let what = format!(
                "#{} was valid until {until:?}, its lease ended at {ended:?}",
                operation.number
            );
            self.found(ViolationKind::BeyondExpiry, until, what);
        }
    }

    fn judge_signal(&mut self, operation: &Operation) {
        let Some(until) = operation
            .validity
            .iter()
            .map(|validity| validity.until)
            .max()
        else {
            return;
        };
        let expiry = operation
            .validity
            .last()
            .and_then(|validity| validity.expiry);
        let told = match (operation.lost, operation.ended) {
            (Some((at, _)), _) => at,
            (None, Some((at, _))) => at,
            (None, None) => Duration::MAX,
        };
        let late = told > until + SLACK || expiry.is_some_and(|expiry| told > expiry);
        if late && !self.world.forgetful && !self.was_paused(operation.process, until, told) {
            let what = format!(
                "#{} was valid until {until:?}, its lease until {expiry:?}, and was told {:?}",
                operation.number, operation.lost
            );
            self.found(ViolationKind::LateSignal, told.min(until + SLACK), what);
        }
    }

    /// A lease that ran out was tried to be renewed more than once: one lost message costs no lock.
    fn judge_tries(&mut self, operation: &Operation) {
        let ran_out = |(_, reason): &(_, LostReason)| {
            matches!(reason, LostReason::Expired | LostReason::Unreachable)
        };
        let lost = operation.lost.as_ref().filter(|lost| ran_out(lost));
        let (Some((lost, _)), Some(acquired)) = (lost, operation.acquired_at()) else {
            return;
        };
        let until = operation
            .validity
            .iter()
            .map(|validity| validity.until)
            .max();
        let since = until
            .unwrap_or_default()
            .saturating_sub(operation.ttl * 8 / 10);
        let paused = self.was_paused(operation.process, since, *lost);
        let Some((tenure, ..)) = self.tenure_of(operation) else {
            return;
        };
        // A lease that was granted late has no time for two tries.
        if !operation.automatic || acquired > since || paused {
            return;
        }
        let tries = self.book.tries.get(&tenure.id).into_iter().flatten();
        let tries = tries.filter(|at| (since..*lost).contains(*at)).count();
        if tries < 2 {
            let what = format!(
                "#{} was tried to be renewed {tries} times",
                operation.number
            );
            self.found(ViolationKind::NotRenewed, *lost, what);
        }
    }

    fn judge_looks(&mut self, operation: &Operation) {
        let Some((lost, reason)) = operation.lost else {
            return;
        };
        if let Some((at, _)) = operation
            .looks
            .iter()
            .find(|(at, held)| *held && *at > lost)
        {
            let what = format!("#{} was lost at {lost:?}: {reason}", operation.number);
            self.found(ViolationKind::Unlost, *at, what);
        }
    }
}

/// A timer that follows a clock which is too fast by the most is late by that share of the second
/// after which the scheduler looks again, and by the millisecond that timers are rounded to.
const SLACK: Duration = Duration::from_millis(MOST_DRIFT as u64 / 1000 + 3);
