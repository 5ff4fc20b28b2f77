//! Backends and engines that are broken on purpose, to prove that the checks see it.
//!
//! A check that never fails proves nothing. Each [`Mutation`] breaks one rule in the simulated
//! store, in its client or in what stands for the engine. A simulated history has to show the kind of
//! violation that it stands for, or the conformance suite on [`SimBackend`](crate::sim::SimBackend) a
//! case that fails.

use std::ops::Range;

use crate::sim::{SimViolation, Simulation, ViolationKind};
use crate::variants;

variants! {
    /// One way to break a store, its client or the engine.
    Mutation,
    /// The violation in a simulated history that it has to be caught by; none if the conformance
    /// suite alone finds it.
    violates: Option<ViolationKind> {
        /// What a dropped or failed acquisition may have been granted is not given back.
        AcknowledgedOnly => Some(ViolationKind::Orphan),
        /// Contention is reported as an error of the server.
        ContentionAsError => Some(ViolationKind::FalseError),
        /// A lease counts from the reply in place of the request.
        DeadlineFromReply => Some(ViolationKind::BeyondExpiry),
        /// An error of the server is reported as contention.
        ErrorAsContention => Some(ViolationKind::FalseContention),
        /// Every request is granted.
        ExcludesNobody => Some(ViolationKind::Overlap),
        /// An extension of a lease is answered, and the lease stays as it is.
        ExtendsNothing => None,
        /// Names are folded to lower case.
        FoldsNames => Some(ViolationKind::BeyondExpiry),
        /// A lease that is handed over keeps its token.
        HandOverKeepsToken => Some(ViolationKind::TokenOrder),
        /// A process uses one id for all of its acquisitions.
        IdReused => Some(ViolationKind::Overlap),
        /// The last waiter is served first.
        LastComeFirstServed => None,
        /// A grant that comes after its lease has run out is returned.
        LateGrant => Some(ViolationKind::BeyondExpiry),
        /// A waiter whose turn it is is forgotten.
        LostWaiter => Some(ViolationKind::PassedOver),
        /// Leases do not run out.
        NoExpiry => Some(ViolationKind::PassedOver),
        /// One permit more is given than there are.
        PermitBeyondLimit => Some(ViolationKind::Overlap),
        /// The place of a waiter that gave up stays in the queue.
        QueueEntryLeft => Some(ViolationKind::Orphan),
        /// A release frees whatever lock there is.
        ReleaseByAnyone => Some(ViolationKind::Overlap),
        /// Renewals go on after the release.
        RenewalAfterRelease => Some(ViolationKind::HeldAfterRelease),
        /// A renewal takes a lock that has run out.
        RenewalRevives => Some(ViolationKind::BeyondExpiry),
        /// A renewal for less than is left of a lease makes it shorter.
        RenewalsCut => None,
        /// A writer is let in while there are readers.
        SharedAdmitsWriter => Some(ViolationKind::Overlap),
        /// A renewal without an answer counts as one.
        SilenceIsConsent => Some(ViolationKind::BeyondExpiry),
        /// The next holder gets the token of the last one.
        TokenReused => Some(ViolationKind::TokenOrder),
        /// A request that must not wait waits.
        TriesWait => None,
        /// A lock that was lost is held again.
        UnLose => Some(ViolationKind::Unlost),
    }
}

impl Mutation {
    /// Runs histories until one shows the violation: its seed and what was seen.
    #[must_use]
    pub fn hunt(self, seeds: Range<u64>) -> Option<(u64, SimViolation)> {
        seeds.into_iter().find_map(|seed| {
            let outcome = Simulation::new(seed).with_mutation(self).run();
            let mut violations = outcome.violations.into_iter();
            let violation =
                violations.find(|violation| Some(violation.kind()) == self.violates())?;
            Some((seed, violation))
        })
    }
}
