//! Renewal of leases: the request to a server, and its reply.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::timing::LeaseTiming;
use crate::engine::{LeaseId, Moment, before, catch_panic_async};
use crate::error::{Error, ErrorKind, Result};
use crate::key::LockKey;
use crate::lost_reason::LostReason;
use crate::request::AcquireRequest;

/// Renews the leases of one server.
#[async_trait]
pub trait Renewer: fmt::Debug + Send + Sync + 'static {
    /// Renews every lease of `due`, in as few requests as the server allows, and answers for each, in
    /// the same order.
    ///
    /// `Err` means *unknown*, not lost: the core tries again while the lease is valid. A lease that
    /// has ended must not be taken anew.
    ///
    /// The ttl of a lease may differ from one renewal to the next, and a delayed request may arrive
    /// after later ones: [`TtlRule`] says how the server must treat it.
    ///
    /// # For implementors
    ///
    /// Automatic renewals run on the engine's own thread, for leases of all the runtimes of the
    /// process, and should use a connection of their own; [`LockGuard::renew`](crate::LockGuard::renew)
    /// calls it on the runtime of its caller. The core bounds the time of every call by dropping the
    /// future.
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>>;

    /// The longest ttl that a lease may be renewed for. The backend refuses requests with a longer ttl or min
    /// hold. Default:
    /// [`AcquireRequest::MAX_TTL`](crate::AcquireRequest::MAX_TTL).
    fn max_ttl(&self) -> Duration {
        AcquireRequest::MAX_TTL
    }

    /// Whether another process can adopt a lease: where it cannot, no guard becomes a
    /// [`Ticket`](crate::Ticket). Default: false.
    fn adopts(&self) -> bool {
        false
    }
}

/// How a renewal changes the end of a lease, by the clock of the server that executes it.
///
/// The example of [`LeaseId`] renews a lease.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TtlRule {
    /// The lease lasts for at least the ttl from now, and never ends earlier than before. A holder of a
    /// longer lease relies on that: a delayed renewal for less must not shorten it.
    #[default]
    AtLeast,
    /// The lease lasts for the ttl from now, which may be shorter than before: the holder is done within
    /// its min hold.
    Exactly,
}

/// One lease to renew.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct RenewalRequest {
    /// The locked key as the backend knows it.
    pub key: LockKey,
    /// The acquisition.
    pub id: LeaseId,
    /// The time from now that the lease shall last.
    pub ttl: Duration,
    /// How to treat a lease that would last longer.
    pub rule: TtlRule,
    /// How long the caller waits. For requests in one call, the shortest of their timeouts applies to
    /// all replies.
    pub timeout: Duration,
}

impl RenewalRequest {
    /// Asks for a lease of `ttl` from now at least, with the timeout of a renewal of such a lease.
    #[must_use]
    pub fn new(key: LockKey, id: LeaseId, ttl: Duration) -> Self {
        let timeout = LeaseTiming::new(ttl).attempt_timeout();
        Self {
            key,
            id,
            ttl,
            rule: TtlRule::default(),
            timeout,
        }
    }

    /// How long to collect the replies to the requests of one call, a little less than the shortest of their
    /// timeouts. The caller abandons all of them at once; before that, it takes what is known.
    #[must_use]
    pub fn collect_for(requests: &[Self]) -> Duration {
        let timeout = requests.iter().map(|request| request.timeout).min();
        let timeout = timeout.unwrap_or_default();
        timeout.saturating_sub(Duration::from_millis(50).min(timeout / 8))
    }

    /// When a lease ends that is renewed at `now` and would have ended at `end`, by the clock of the
    /// store.
    #[must_use]
    pub fn renewed_end(&self, now: Moment, end: Moment) -> Moment {
        match self.rule {
            TtlRule::AtLeast => end.max(now + self.ttl),
            TtlRule::Exactly => now + self.ttl,
        }
    }
}

/// What the server says of a lease.
///
/// The example of [`LeaseId`] renews a lease.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeaseState {
    /// It is held for at least the ttl of the renewal, counted from when the request was sent.
    Held,
    /// It is not held any more, for certain.
    Lost(LostReason),
}

/// One bounded round of renewals, with one answer for each request whatever the backend returns.
pub(crate) async fn renew(
    renewer: &dyn Renewer,
    requests: &[RenewalRequest],
    timeout: Duration,
) -> Vec<Result<LeaseState>> {
    let unknown =
        |message: &str| Error::new(ErrorKind::Unavailable, message).with_unknown_outcome();
    let until = tokio::time::Instant::now() + timeout;
    let answers = before(until, catch_panic_async(renewer.renew(requests))).await;
    let (mut answers, missing) = match answers {
        Some(Some(answers)) => (answers, "the backend did not answer the renewal"),
        Some(None) => (Vec::new(), "the backend panicked in the renewal"),
        None => (Vec::new(), "the server did not answer the renewal in time"),
    };
    answers.resize_with(requests.len(), || Err(unknown(missing)));
    answers
}
