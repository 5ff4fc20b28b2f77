//! How a held lock leaves this process as a ticket, and how another process gets it.

use std::error::Error as StdError;
use std::fmt;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::LockGuard;
use super::pending::PendingRelease;
use super::release::release_timeout;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::lease::{Grant, Liveness};
use crate::request::AcquireRequest;
use crate::ticket::Ticket;
use crate::token::FencingToken;

impl LockGuard {
    /// Turns the guard into a ticket, by which another process [adopts](crate::DistributedLockExt::adopt)
    /// the lock.
    ///
    /// Renewal stops, and nothing is sent. The lease lasts for its remaining time: usually between half
    /// and nine tenths of the ttl, and right after a wait on Redis at most 2.7 s, since the first lease of a
    /// waiter is short. [`Ticket::valid_until`] says until when. For a longer ticket, call
    /// [`renew_for`](Self::renew_for) before. Tasks of this process that wait for the key do not get the
    /// lease; one of them goes to the server and waits there.
    ///
    /// The rest of the [`min_hold`](AcquireRequest::with_min_hold) goes with the ticket and is kept by the
    /// adopting process; the [`max_hold`](AcquireRequest::with_max_hold) begins anew there. If no process
    /// adopts the ticket, the lock is free when the lease ends.
    ///
    /// # Errors
    ///
    /// The error contains the unchanged guard. Dropping the error releases the lock.
    ///
    /// - [`Lost`](ErrorKind::Lost) if the lock is lost, with the reason.
    /// - [`Unsupported`](ErrorKind::Unsupported) where
    ///   [`Capabilities::tickets`](crate::Capabilities) is false, and if the lock is shared, a permit or
    ///   held on two backends, or has another guard of the same owner.
    ///
    /// # Examples
    ///
    /// [`Ticket`] has one. A guard that stays:
    ///
    /// ```
    /// use polylock_core::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
    /// let locks = polylock_core::memory::Memory::new();
    /// let reader = locks.request("report").shared().acquire().await?;
    /// let refused = reader.into_ticket().expect_err("others read as well");
    /// assert_eq!(refused.error().kind(), ErrorKind::Unsupported);
    /// let reader = refused.into_guard();
    /// assert!(reader.is_held());
    /// # Ok(()) }
    /// ```
    pub fn into_ticket(mut self) -> Result<Ticket, IntoTicketError> {
        match self.leave_as_ticket() {
            Ok(ticket) => Ok(ticket),
            Err(error) => Err(IntoTicketError {
                error: self.named(error),
                guard: self,
            }),
        }
    }

    fn leave_as_ticket(&mut self) -> Result<Ticket> {
        let hold = self.hold();
        let unsupported = |message| Err(Error::new(ErrorKind::Unsupported, message));
        let Liveness::Renewed { id, renewer } = &hold.liveness else {
            return unsupported("a lock that lives with a session or a connection stays with it");
        };
        if !renewer.adopts() {
            return unsupported("another process cannot adopt a lock of this backend");
        }
        if hold.is_on_two_backends() {
            return unsupported("a lock on two backends cannot become a ticket");
        }
        if !hold.is_exclusive() {
            return unsupported("only an exclusive lock can become a ticket");
        }
        self.ensure_held()?;
        // A request of the owner that comes now waits until the lock has left.
        if !hold.entries.close() {
            return unsupported("another guard of the owner counts on the lock");
        }
        // Read first, so that the ticket ends no later than the lease.
        let wall = SystemTime::now();
        let given_up = hold.abandon().map_err(Error::lost)?;
        let id = *id;
        let hold = self.take();
        hold.leave();
        let left = given_up.until.since(hold.engine.now());
        let after = |left| wall.checked_add(left).unwrap_or(wall);
        let ticket = Ticket {
            backend: hold.engine.backend().into(),
            key: hold.named().clone(),
            lease: id,
            ttl: hold.timing.ttl(),
            token: hold.token(),
            min_hold: hold.min_hold_left(),
            valid_until: after(left),
            ends: after(hold.longest_left()),
        };
        // From here on another process has the lock, so local waiters must ask the server.
        hold.notify_queue();
        hold.emit_released(Some(given_up.at), "ticket");
        Ok(ticket.rounded())
    }
}

/// A guard that could not become a ticket, and why.
///
/// Dropping it releases the lock in the background, also where `?` makes an [`Error`] of it.
///
/// The example of [`LockGuard::into_ticket`] goes on with the guard.
#[derive(Debug)]
pub struct IntoTicketError {
    error: Error,
    guard: LockGuard,
}

impl IntoTicketError {
    /// Why.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The guard as it was.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }
}

impl fmt::Display for IntoTicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for IntoTicketError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

impl From<IntoTicketError> for Error {
    fn from(refused: IntoTicketError) -> Self {
        refused.error
    }
}

impl PendingRelease {
    /// Adopts the lease of the request's [ticket](AcquireRequest::ticket), and makes the guard.
    ///
    /// `ask` is [`LockAdmin::adopt_lease`](crate::admin::LockAdmin::adopt_lease) with the id of the armed
    /// lease as the new one. It is retried within the wait of the request, while the outcome is unknown or
    /// the server is unreachable.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLockExt::adopt`](crate::DistributedLockExt::adopt).
    ///
    /// # Cancel safety
    ///
    /// As for a dropped [`PendingRelease`]: an adopted lease is released in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use polylock_core::admin::LockAdmin;
    /// # use polylock_core::engine::{Engine, LeaseId};
    /// # use polylock_core::{AcquireRequest, Lease, LockGuard, Result, Ticket};
    /// # struct Backend<L> { engine: Engine, admin: Box<dyn LockAdmin>, new_lease: fn(LeaseId) -> L }
    /// # impl<L: Lease> Backend<L> {
    /// async fn adopt(&self, request: &AcquireRequest, ticket: &Ticket) -> Result<LockGuard> {
    ///     let (key, ttl, id) = (request.key(), request.ttl(), self.engine.lease_id());
    ///     let lease = Arc::new((self.new_lease)(id));
    ///     let pending = self.engine.pending(key, lease, ttl);
    ///     let ask = || self.admin.adopt_lease(key, ticket.lease_id(), id, ttl);
    ///     pending.adopt(request, ticket, ask).await
    /// }
    /// # }
    /// ```
    pub async fn adopt<A>(
        mut self,
        request: &AcquireRequest,
        ticket: &Ticket,
        ask: impl Fn() -> A + Send,
    ) -> Result<LockGuard>
    where
        A: Future<Output = Result<Option<FencingToken>>> + Send,
    {
        let backend = self.engine.backend();
        let named = |error: Error| error.with_backend(backend).with_key(request.key());
        if let Err(error) = request.check_ticket(ticket, backend) {
            self.disarm();
            return Err(named(error));
        }
        let longest_left = ticket.longest_left();
        self.ttl = self.ttl.max(longest_left);
        let mut repeats = Repeats::new(request, longest_left);
        let mut is_unknown = false;
        loop {
            // A repeated request extends the lease again, so that each counts from its own time.
            let sent = self.engine.now();
            let answer = self.engine.within(repeats.attempt_timeout(), ask()).await;
            let error = match answer.unwrap_or_else(|| Err(silent())) {
                Ok(Some(token)) => {
                    // A grant that arrives too late is released: the ticket is then used up.
                    let guard = self.granted(request, Grant::new(sent, Some(token)))?;
                    guard.hold().may_last(longest_left);
                    return Ok(guard);
                }
                Ok(None) => {
                    // An earlier request may still arrive late, and is then undone.
                    if !is_unknown {
                        self.disarm();
                    }
                    return Err(named(over()));
                }
                Err(error) => named(error),
            };
            is_unknown |= error.is_outcome_unknown();
            let is_final = !error.is_outcome_unknown() && error.kind() != ErrorKind::Unavailable;
            if !is_final && repeats.pause(&self.engine).await {
                continue;
            }
            if is_unknown {
                // Dropped, it undoes what may have been adopted.
                return Err(error.with_unknown_outcome());
            }
            self.disarm();
            return Err(error);
        }
    }
}

/// The deadline and the backoff of retries to an unresponsive server.
struct Repeats {
    attempt: Duration,
    /// `None` for a single attempt.
    deadline: Option<Instant>,
    backoff: Duration,
}

const MIN_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_secs(1);

impl Repeats {
    fn new(request: &AcquireRequest, longest_left: Duration) -> Self {
        let end_of_lease = Instant::now() + longest_left;
        let deadline = request.wait().deadline();
        let deadline = deadline.map_or(end_of_lease, |deadline| deadline.min(end_of_lease));
        Self {
            attempt: release_timeout(request.ttl()),
            deadline: request.wait().waits().then_some(deadline),
            backoff: MIN_BACKOFF,
        }
    }

    fn attempt_timeout(&self) -> Duration {
        let left = self
            .deadline
            .map(|at| at.saturating_duration_since(Instant::now()));
        left.map_or(self.attempt, |left| left.min(self.attempt))
    }

    /// Waits before the next attempt; false if there is no time for one.
    async fn pause(&mut self, engine: &Engine) -> bool {
        let pause = engine.jitter(self.backoff / 2, self.backoff);
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        let next = Instant::now() + pause;
        let is_in_time = self.deadline.is_some_and(|deadline| next < deadline);
        if is_in_time {
            tokio::time::sleep_until(next).await;
        }
        is_in_time
    }
}

fn over() -> Error {
    let message =
        "the ticket holds nothing any more: its lease has ended, or another process has it";
    Error::new(ErrorKind::Lost, message)
}

fn silent() -> Error {
    let message = "the server does not answer the adoption";
    Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
}
