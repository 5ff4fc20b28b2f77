//! Backends and engines that are broken on purpose, to prove that the checks see it.
//!
//! A check that never fails proves nothing. Each [`Mutation`] breaks one rule in the simulated
//! store, in its client or in what stands for the engine. A simulated history has to show the kind of
//! violation that it stands for, or the conformance suite on [`SimBackend`](crate::sim::SimBackend) a
//! case that fails.

use crate::sim::ViolationKind;
use crate::variants;

variants! {
    /// One way to break a store, its client or the engine.
    Mutation,
    /// The violation that a simulated history must show; `None` if only the conformance suite
    /// finds the mutation.
    violates: Option<ViolationKind> {
        /// A dropped or failed acquisition does not release a possible grant.
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
        /// A grant that arrives after the lease expired is returned.
        LateGrant => Some(ViolationKind::BeyondExpiry),
        /// The next waiter in the queue is forgotten.
        LostWaiter => Some(ViolationKind::PassedOver),
        /// Leases do not expire.
        NoExpiry => Some(ViolationKind::PassedOver),
        /// One permit more is given than there are.
        PermitBeyondLimit => Some(ViolationKind::Overlap),
        /// The place of a waiter that gave up stays in the queue.
        QueueEntryLeft => Some(ViolationKind::Orphan),
        /// A release frees the lock of any holder.
        ReleaseByAnyone => Some(ViolationKind::Overlap),
        /// Renewals go on after the release.
        RenewalAfterRelease => Some(ViolationKind::HeldAfterRelease),
        /// A renewal acquires a lock whose lease expired.
        RenewalRevives => Some(ViolationKind::BeyondExpiry),
        /// A renewal with a short TTL makes the lease shorter.
        RenewalsCut => None,
        /// A renewal is answered, and leaves a lease as it is while more than half of it is left.
        RenewalsSkipped => None,
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
