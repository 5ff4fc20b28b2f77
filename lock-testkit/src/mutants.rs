//! Backends and engines that are broken on purpose, to prove that the checks see it.
//!
//! A check that never fails proves nothing. Each [`Mutation`] breaks one rule in the simulated
//! store, in its client or in what stands for the engine. A simulated history has to show the kind of
//! violation that it stands for, or the conformance suite on [`SimBackend`](crate::sim::SimBackend) a
//! case that fails.

/// One way to break a store, its client or the engine.
#[expect(clippy::exhaustive_enums, reason = "a test has each of them")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mutation {
    /// A dropped or failed acquisition does not release a possible grant.
    AcknowledgedOnly,
    /// Contention is reported as an error of the server.
    ContentionAsError,
    /// A lease counts from the reply in place of the request.
    DeadlineFromReply,
    /// An error of the server is reported as contention.
    ErrorAsContention,
    /// Every request is granted.
    ExcludesNobody,
    /// An extension of a lease is answered, and the lease stays as it is.
    ExtendsNothing,
    /// Names are folded to lower case.
    FoldsNames,
    /// A lease that is handed over keeps its token.
    HandOverKeepsToken,
    /// A process uses one id for all of its acquisitions.
    IdReused,
    /// The last waiter is served first.
    LastComeFirstServed,
    /// A grant that arrives after the lease expired is returned.
    LateGrant,
    /// The next waiter in the queue is forgotten.
    LostWaiter,
    /// Leases do not expire.
    NoExpiry,
    /// One permit more is given than there are.
    PermitBeyondLimit,
    /// The place of a waiter that gave up stays in the queue.
    QueueEntryLeft,
    /// A release frees the lock of any holder.
    ReleaseByAnyone,
    /// Renewals go on after the release.
    RenewalAfterRelease,
    /// A renewal acquires a lock whose lease expired.
    RenewalRevives,
    /// A renewal with a short TTL makes the lease shorter.
    RenewalsCut,
    /// A renewal is answered, and leaves a lease as it is while more than half of it is left.
    RenewalsSkipped,
    /// A writer is let in while there are readers.
    SharedAdmitsWriter,
    /// A renewal without an answer counts as one.
    SilenceIsConsent,
    /// The next holder gets the token of the last one.
    TokenReused,
    /// A request that must not wait waits.
    TriesWait,
    /// A lock that was lost is held again.
    UnLose,
}
