//! Backends and engines that are broken on purpose, to prove that the checks see it.
//!
//! A check that never fails proves nothing. Each [`Mutation`] breaks one rule in the simulated
//! store, in its client or in what stands for the engine, and has to be caught by the kind of
//! violation that it stands for.

pub(crate) mod engine;

use std::ops::Range;

use crate::sim::{Simulation, Violation, ViolationKind};

/// One way to break a store, its client or the engine.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Mutation {
    /// What a dropped or failed acquisition may have been granted is not given back.
    AcknowledgedOnly,
    /// Contention is reported as an error of the server.
    ContentionAsError,
    /// A lease counts from the reply in place of the request.
    DeadlineFromReply,
    /// An error of the server is reported as contention.
    ErrorAsContention,
    /// A lease that is handed over keeps its token.
    HandOverKeepsToken,
    /// A process uses one id for all of its acquisitions.
    IdReused,
    /// A grant that comes after its lease has run out is returned.
    LateGrant,
    /// A waiter whose turn it is is forgotten.
    LostWaiter,
    /// Leases do not run out.
    NoExpiry,
    /// One permit more is given than there are.
    PermitBeyondLimit,
    /// The place of a waiter that gave up stays in the queue.
    QueueEntryLeft,
    /// A release frees whatever lock there is.
    ReleaseByAnyone,
    /// Renewals go on after the release.
    RenewalAfterRelease,
    /// A renewal takes a lock that has run out.
    RenewalRevives,
    /// A writer is let in while there are readers.
    SharedAdmitsWriter,
    /// A renewal without an answer counts as one.
    SilenceIsConsent,
    /// The next holder gets the token of the last one.
    TokenReused,
    /// A lock that was lost is held again.
    UnLose,
}

/// A mutation that was caught.
#[non_exhaustive]
#[derive(Debug)]
pub struct Caught {
    /// The seed of the first history that showed it.
    pub seed: u64,
    /// What was seen.
    pub violation: Violation,
}

impl Mutation {
    /// Every mutation.
    pub const ALL: [Self; 18] = [
        Self::AcknowledgedOnly,
        Self::ContentionAsError,
        Self::DeadlineFromReply,
        Self::ErrorAsContention,
        Self::HandOverKeepsToken,
        Self::IdReused,
        Self::LateGrant,
        Self::LostWaiter,
        Self::NoExpiry,
        Self::PermitBeyondLimit,
        Self::QueueEntryLeft,
        Self::ReleaseByAnyone,
        Self::RenewalAfterRelease,
        Self::RenewalRevives,
        Self::SharedAdmitsWriter,
        Self::SilenceIsConsent,
        Self::TokenReused,
        Self::UnLose,
    ];

    /// The violation that it has to be caught by.
    #[must_use]
    pub fn violates(self) -> ViolationKind {
        match self {
            Self::AcknowledgedOnly | Self::QueueEntryLeft => ViolationKind::Orphan,
            Self::ContentionAsError => ViolationKind::FalseError,
            Self::DeadlineFromReply
            | Self::LateGrant
            | Self::RenewalRevives
            | Self::SilenceIsConsent => ViolationKind::BeyondExpiry,
            Self::ErrorAsContention => ViolationKind::FalseContention,
            Self::HandOverKeepsToken | Self::TokenReused => ViolationKind::TokenOrder,
            Self::IdReused
            | Self::PermitBeyondLimit
            | Self::ReleaseByAnyone
            | Self::SharedAdmitsWriter => ViolationKind::Overlap,
            Self::LostWaiter | Self::NoExpiry => ViolationKind::PassedOver,
            Self::RenewalAfterRelease => ViolationKind::HeldAfterRelease,
            Self::UnLose => ViolationKind::Unlost,
        }
    }

    /// Runs histories until one shows the violation; `None` if none does.
    #[must_use]
    pub fn hunt(self, seeds: Range<u64>) -> Option<Caught> {
        seeds.into_iter().find_map(|seed| {
            let outcome = Simulation::new(seed).with_mutation(self).run();
            let mut violations = outcome.violations.into_iter();
            let violation = violations.find(|violation| violation.kind() == self.violates())?;
            Some(Caught { seed, violation })
        })
    }
}
