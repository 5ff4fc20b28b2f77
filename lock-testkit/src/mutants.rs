//! Backends and engines that are broken on purpose, to prove that the checks see it.
//!
//! A check that never fails proves nothing. Each [`Mutation`] breaks one rule in the simulated
//! store, in its client or in what stands for the engine, and has to be caught by the kind of
//! violation that it stands for.

use std::ops::Range;

use crate::sim::{Simulation, Violation, ViolationKind};
use crate::variants;

variants! {
    /// One way to break a store, its client or the engine.
    Mutation,
    /// The violation that it has to be caught by.
    violates: ViolationKind {
        /// What a dropped or failed acquisition may have been granted is not given back.
        AcknowledgedOnly => ViolationKind::Orphan,
        /// Contention is reported as an error of the server.
        ContentionAsError => ViolationKind::FalseError,
        /// A lease counts from the reply in place of the request.
        DeadlineFromReply => ViolationKind::BeyondExpiry,
        /// An error of the server is reported as contention.
        ErrorAsContention => ViolationKind::FalseContention,
        /// A lease that is handed over keeps its token.
        HandOverKeepsToken => ViolationKind::TokenOrder,
        /// A process uses one id for all of its acquisitions.
        IdReused => ViolationKind::Overlap,
        /// A grant that comes after its lease has run out is returned.
        LateGrant => ViolationKind::BeyondExpiry,
        /// A waiter whose turn it is is forgotten.
        LostWaiter => ViolationKind::PassedOver,
        /// Leases do not run out.
        NoExpiry => ViolationKind::PassedOver,
        /// One permit more is given than there are.
        PermitBeyondLimit => ViolationKind::Overlap,
        /// The place of a waiter that gave up stays in the queue.
        QueueEntryLeft => ViolationKind::Orphan,
        /// A release frees whatever lock there is.
        ReleaseByAnyone => ViolationKind::Overlap,
        /// Renewals go on after the release.
        RenewalAfterRelease => ViolationKind::HeldAfterRelease,
        /// A renewal takes a lock that has run out.
        RenewalRevives => ViolationKind::BeyondExpiry,
        /// A writer is let in while there are readers.
        SharedAdmitsWriter => ViolationKind::Overlap,
        /// A renewal without an answer counts as one.
        SilenceIsConsent => ViolationKind::BeyondExpiry,
        /// The next holder gets the token of the last one.
        TokenReused => ViolationKind::TokenOrder,
        /// A lock that was lost is held again.
        UnLose => ViolationKind::Unlost,
    }
}

impl Mutation {
    /// Runs histories until one shows the violation: its seed and what was seen.
    #[must_use]
    pub fn hunt(self, seeds: Range<u64>) -> Option<(u64, Violation)> {
        seeds.into_iter().find_map(|seed| {
            let outcome = Simulation::new(seed).with_mutation(self).run();
            let mut violations = outcome.violations.into_iter();
            let violation = violations.find(|violation| violation.kind() == self.violates())?;
            Some((seed, violation))
        })
    }
}
