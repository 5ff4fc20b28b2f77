use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::LockKey;

use super::{Case, ViolationKind};
use crate::history::{Checker, Violation};

impl Case<'_> {
    /// What the checker says, which judges any history by what its holders saw: nobody holds a lock
    /// together with others whom it excludes, tokens grow, and nobody is robbed.
    pub(super) fn judge_exclusion(&mut self) {
        // It knows nothing of pauses and faults, which make signals late and waits long.
        let checker = Checker::new().with_signal_delay(LONG).with_max_idle(LONG);
        for (key, violation) in checker.check(&self.book.events).violations {
            // A grant that was on its way when the store lost its data may come after a later one.
            let overtaken =
                self.world.forgetful && matches!(violation, Violation::TokenWentBack { .. });
            if overtaken || self.is_explained(&violation) {
                continue;
            }
            let what = format!("{key}: {violation}");
            self.found(kind(&violation), Duration::ZERO, what);
        }
        self.judge_issues();
    }

    /// The store issues larger tokens with each grant, whatever it has lost.
    fn judge_issues(&mut self) {
        let mut last: BTreeMap<&LockKey, u64> = BTreeMap::new();
        for (tenure, from, _) in self.tenures {
            let (token, block_end) = tenure.tokens;
            let before = last.insert(&tenure.key, block_end);
            if before.is_some_and(|before| token <= before) {
                let what = format!("token {token} is issued after {before:?}");
                self.found(ViolationKind::TokenOrder, *from, what);
            }
        }
    }

    /// Whether a lock that seems to be taken without a cause had run out before its holder was told
    /// so, or had been released by an earlier copy of the release that was answered.
    fn is_explained(&self, violation: &Violation) -> bool {
        let Violation::LostWithoutCause { holder } = violation else {
            return false;
        };
        let number = usize::try_from(holder - 1).unwrap_or(usize::MAX);
        let Some(holder) = self.book.operations.get(number) else {
            return false;
        };
        let until = holder.validity.iter().map(|validity| validity.until).max();
        let ran_out = holder.lost.is_some_and(|(lost, _)| Some(lost) >= until);
        let gone = self.tenure_of(holder).map(|(_, _, until)| *until);
        let released = holder.ended.is_some_and(|(ended, _)| gone >= Some(ended));
        ran_out || holder.lost.is_none() && released
    }
}

/// Longer than a history.
const LONG: Duration = Duration::from_secs(1000);

fn kind(violation: &Violation) -> ViolationKind {
    match violation {
        Violation::ForeignRelease { .. } => ViolationKind::ForeignRelease,
        Violation::HeldAfterLoss { .. } => ViolationKind::Unlost,
        Violation::LateSignal { .. } => ViolationKind::LateSignal,
        Violation::LeftBehind { .. } => ViolationKind::LeftBehind,
        Violation::LostWithoutCause { .. } => ViolationKind::LostWithoutCause,
        Violation::Overlap { .. } => ViolationKind::Overlap,
        Violation::RefusedFreshToken { .. } => ViolationKind::WriterRefused,
        Violation::RegisterWentBack { .. } => ViolationKind::RegisterWentBack,
        Violation::Starved { .. } => ViolationKind::PassedOver,
        Violation::TokenReused { .. } | Violation::TokenWentBack { .. } => {
            ViolationKind::TokenOrder
        }
        other => unreachable!("BUG: the simulation has no word for {other}"),
    }
}
