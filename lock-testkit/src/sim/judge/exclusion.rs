use std::time::Duration;

use super::{Case, ViolationKind};
use crate::history;
use crate::history::Checker;

impl Case<'_> {
    /// What the checker says, which judges any history by what its holders saw: nobody holds a lock
    /// together with others whom it excludes, tokens grow, and nobody is robbed.
    pub(super) fn judge_exclusion(&mut self) {
        // It knows nothing of pauses and faults, which make signals late and waits long.
        let checker = Checker::new().with_signal_delay(LONG).with_patience(LONG);
        for (key, violation) in checker.check(&self.book.events).violations {
            self.found(
                kind(&violation),
                Duration::ZERO,
                format!("{key}: {violation}"),
            );
        }
    }
}

/// Longer than a history.
const LONG: Duration = Duration::from_secs(1000);

fn kind(violation: &history::Violation) -> ViolationKind {
    use history::Violation;
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
    }
}
