/// A way in which [`RedisLike::flawed`](super::RedisLike::flawed) breaks a promise, to prove that
/// the suite sees it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flaw {
    /// A release by anyone frees the lock.
    AnyoneReleases,
    /// A lease counts from the reply in place of the request.
    CountsFromReply,
    /// An error of the server is reported as contention.
    ErrorsAreContention,
    /// Every request is granted.
    ExcludesNobody,
    /// Names are folded to lower case.
    FoldsNames,
    /// A lease that is handed over keeps its token.
    HandOverKeepsToken,
    /// Who came last is served first.
    LastComeFirstServed,
    /// A lease never runs out.
    NeverExpires,
    /// A request that was dropped or failed is not undone.
    NothingUndone,
    /// A place in the queue stays when its waiter is gone.
    PlacesStay,
    /// A release is answered before anything is released.
    ReleasesLate,
    /// A renewal takes a lock that is free.
    RenewalsTake,
    /// The token of a key stays the same.
    TokensRepeat,
    /// A request that must not wait waits.
    TriesWait,
}
