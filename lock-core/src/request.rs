use std::sync::Arc;
use std::time::Duration;

use crate::attempt_state::{AttemptState, WhyFull};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{EventEmitter, EventKind, Observer};
use crate::key::LockKey;
use crate::label::Label;
use crate::mode::{self, Mode, Renewal, Wait};
use crate::owner::Owner;
use crate::ticket::Ticket;

/// What to acquire, and how.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::{AcquireRequest, LockKey, Mode, Wait};
///
/// let request = AcquireRequest::new(LockKey::new("report")?)
///     .with_mode(Mode::Shared)
///     .with_wait(Wait::AtMost(Duration::from_secs(2)))
///     .with_ttl(Duration::from_secs(10));
/// assert_eq!(request.ttl(), Duration::from_secs(10));
/// # Ok::<(), polylock_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    // The fields that layers change, so that they need no copy of the rest.
    key: LockKey,
    wait: Wait,
    owner: Option<Owner>,
    attempt_state: Option<Arc<AttemptState>>,
    options: Arc<RequestOptions>,
}

/// Shared between the layers that pass a request on; copied on write.
#[derive(Clone, Debug)]
struct RequestOptions {
    /// The user's key, where a layer stores the lock under another one.
    named: LockKey,
    mode: Mode,
    ttl: Duration,
    renewal: Renewal,
    min_hold: Duration,
    max_hold: Option<Duration>,
    takes_hand_overs: bool,
    label: Label,
    class: Option<Arc<str>>,
    /// With the name of the backend that it observes.
    observer: Option<(Arc<dyn Observer>, &'static str)>,
    ticket: Option<Arc<Ticket>>,
}

impl AcquireRequest {
    /// Lease of a request that sets none.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

    /// Shortest lease of any backend; [`Capabilities::min_ttl`](crate::Capabilities) has the limit of each.
    /// A lease below 5 s logs a warning, because a pause of a busy machine or a failover of the server can
    /// then lose the lock.
    ///
    /// The 50 ms min margin is a tenth of this lease. A renewal is due after a third of it. The rest leaves
    /// time for the renewal and one retry, which may take 100 ms each.
    pub const MIN_TTL: Duration = Duration::from_millis(500);

    /// Longest lease that is accepted.
    pub const MAX_TTL: Duration = mode::MAX_TTL;

    /// A shorter lease logs a warning: a short pause of the process or a failover loses it.
    pub const SHORT_TTL: Duration = Duration::from_secs(5);

    /// Default max hold, after which renewal stops and the lock is lost.
    pub const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(60 * 60);

    /// Asks for an exclusive lock on `key` with the defaults of each option.
    #[must_use]
    pub fn new(key: LockKey) -> Self {
        let options = RequestOptions {
            named: key.clone(),
            mode: Mode::default(),
            ttl: Self::DEFAULT_TTL,
            renewal: Renewal::default(),
            min_hold: Duration::ZERO,
            max_hold: Some(Self::DEFAULT_MAX_HOLD),
            takes_hand_overs: true,
            label: Label::of_this_process(),
            class: None,
            observer: None,
            ticket: None,
        };
        Self {
            key,
            wait: Wait::default(),
            owner: None,
            attempt_state: None,
            options: Arc::new(options),
        }
    }

    /// Asks for the lease of a ticket, on its key and with its ttl.
    ///
    /// [`DistributedLockExt::adopt`](crate::DistributedLockExt::adopt) sends it unchanged; for other
    /// options pass it to [`DistributedLock::acquire`](crate::DistributedLock::acquire). The
    /// [wait](Self::with_wait) limits how long an unresponsive server is retried. The
    /// [`min_hold`](Self::with_min_hold) is the rest of the ticket's min hold. The
    /// [`max_hold`](Self::with_max_hold) is the default, or the `min_hold` if that is longer. Both count
    /// from the adoption. The mode is exclusive. Where the backend stores the label with the lock, it
    /// stays that of the process that made the ticket.
    ///
    /// # Examples
    ///
    /// ```
    /// use polylock_core::AcquireRequest;
    /// use polylock_core::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
    /// # let locks = polylock_core::memory::Memory::new();
    /// # let ticket = locks.lock("reindex").await?.into_ticket()?;
    /// let request = AcquireRequest::adopting(&ticket).with_max_hold(None);
    /// let guard = locks.acquire(&request).await?;
    /// assert_eq!(guard.key(), ticket.key());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn adopting(ticket: &Ticket) -> Self {
        let min_hold = ticket.min_hold();
        Self::new(ticket.key().clone())
            .with_ttl(ticket.ttl())
            .with_min_hold(min_hold)
            .with_max_hold(Self::DEFAULT_MAX_HOLD.max(min_hold))
            .change(|options| options.ticket = Some(Arc::new(ticket.clone())))
    }

    fn change(mut self, change: impl FnOnce(&mut RequestOptions)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self
    }

    /// Sets the mode. Default: [`Mode::Exclusive`].
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        self.change(|options| options.mode = mode)
    }

    /// Sets how long to wait. Default: at most 30 s.
    #[must_use]
    pub fn with_wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// Sets the lease, at least 500 ms on Redis (not a quorum) and in memory, 2 s on etcd and 1 s elsewhere,
    /// and at most 24 h. Default: 30 s.
    ///
    /// A shorter lease frees the lock of a crashed holder sooner, but survives only shorter pauses and
    /// outages. Backends that bind a lock to a connection or a session free the lock when that ends, and use
    /// the ttl for the bounds they state.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        self.change(|options| options.ttl = ttl)
    }

    /// Sets what extends the lease. Default: [`Renewal::Automatic`].
    #[must_use]
    pub fn with_renewal(self, renewal: Renewal) -> Self {
        self.change(|options| options.renewal = renewal)
    }

    /// Keeps the lock held at least this long after the acquisition, even if it is released sooner. Default:
    /// zero, at most 24 h, and on a quorum of Redis masters at most its `rejoin-delay`.
    ///
    /// For jobs that must not run twice within a period although their clocks differ. A release within that
    /// time lets the lease expire and does not wait for it. A lock that lives with a session or a connection
    /// is kept by this process instead, and [`shutdown`](crate::DistributedLock::shutdown) waits for that. A lock
    /// whose guard reached no caller, because the request was dropped or another of several keys was not granted,
    /// is released at once.
    #[must_use]
    pub fn with_min_hold(self, min_hold: Duration) -> Self {
        self.change(|options| options.min_hold = min_hold)
    }

    /// Ends automatic renewal this long after the acquisition; the lock is then lost with
    /// [`LostReason::MaxHold`](crate::LostReason::MaxHold). Default: 1 h. With `None` renewal never ends, so
    /// that a hung holder keeps the lock for as long as its process lives.
    #[must_use]
    pub fn with_max_hold(self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.change(|options| options.max_hold = max_hold.into())
    }

    /// Acquires the lock from the server, never by a hand-over from another task of this process. Default:
    /// hand-overs are allowed, which cost the server nothing.
    ///
    /// After a hand-over the server may still show the label and the token of the first holder. For a holder
    /// that others look up, such as a leader.
    #[must_use]
    pub fn without_hand_over(self) -> Self {
        self.change(|options| options.takes_hand_overs = false)
    }

    /// Lets the request re-enter a lock that the same owner holds. Default: none.
    ///
    /// For exclusive locks only: a request for a shared lock, for a permit or with a ticket that has an owner is
    /// [`Unsupported`](ErrorKind::Unsupported). A request that re-enters shares the lease of the first one. Its own
    /// ttl, renewal, min hold, max hold and label, and [`without_hand_over`](Self::without_hand_over), have no
    /// effect.
    #[must_use]
    pub fn with_owner(self, owner: Owner) -> Self {
        let owner = Some(owner);
        Self { owner, ..self }
    }

    /// Sets the label of the holder that others see. Default: host, process id and program.
    #[must_use]
    pub fn with_label(self, label: Label) -> Self {
        self.change(|options| options.label = label)
    }

    /// Names the kind of work, as a label of metrics. Default: none.
    ///
    /// Give few distinct names (`"payment"`), never the key.
    #[must_use]
    pub fn with_class(self, class: impl Into<Arc<str>>) -> Self {
        self.change(|options| options.class = Some(class.into()))
    }

    /// Replaces the key.
    #[must_use]
    pub fn with_key(self, key: LockKey) -> Self {
        self.change(|options| options.named = key.clone())
            .stored_as(key)
    }

    /// Stores the lock under another key than the one that the user sees.
    pub(crate) fn stored_as(self, key: LockKey) -> Self {
        Self { key, ..self }
    }

    /// The key as the user named it.
    pub(crate) fn named(&self) -> &LockKey {
        &self.options.named
    }

    /// For the layers below the local queue, which limits the wait and counts the re-entries.
    pub(crate) fn in_attempt(self, wait: Wait, attempt_state: &Arc<AttemptState>) -> Self {
        Self {
            wait,
            owner: None,
            attempt_state: Some(Arc::clone(attempt_state)),
            ..self
        }
    }

    /// Notes that another client holds the lock. For implementors.
    ///
    /// A backend calls it as soon as the server reports a holder, each time or once, on the request that it
    /// was given. If the wait ends in a layer above, that layer then reports
    /// [`Contended`](ErrorKind::Contended) and not [`Unavailable`](ErrorKind::Unavailable).
    pub fn mark_contended(&self) {
        if let Some(attempt_state) = &self.attempt_state {
            attempt_state.mark_contended();
        }
    }

    /// Notes that the server no longer answers. For implementors.
    ///
    /// A backend that keeps retrying calls it. If the wait ends in a layer above meanwhile, that layer then
    /// ignores the server's earlier replies. [`mark_contended`](AcquireRequest::mark_contended) undoes it.
    pub fn mark_unresponsive(&self) {
        if let Some(attempt_state) = &self.attempt_state {
            attempt_state.mark_unresponsive(None);
        }
    }

    /// Notes that the server cannot grant the lock at the moment, and why. For implementors.
    ///
    /// It is [`mark_unresponsive`](AcquireRequest::mark_unresponsive) for a backend that keeps retrying and knows
    /// the reason. If the wait ends in a layer above meanwhile, that layer reports
    /// [`Unavailable`](ErrorKind::Unavailable) with `why` as its message. An observer gets it at once.
    pub fn mark_unavailable(&self, why: &str) {
        if let Some(attempt_state) = &self.attempt_state {
            attempt_state.mark_unresponsive(Some(why));
        }
        if let Some((_, backend)) = &self.options.observer {
            self.emitter(backend).emit(EventKind::Unavailable { why });
        }
    }

    /// Notes that the request waits for room in this client, such as a free connection, or with `None` that it no
    /// longer does. For implementors.
    ///
    /// If the wait ends in a layer above meanwhile, that layer calls `why`. It then reports
    /// [`QueueFull`](ErrorKind::QueueFull) with the returned message and not
    /// [`Unavailable`](ErrorKind::Unavailable), because the server was not asked. `why` returns `None` if there
    /// is room, as when a connection is being opened.
    pub fn mark_full(&self, why: Option<Arc<dyn Fn() -> Option<String> + Send + Sync>>) {
        if let Some(attempt_state) = &self.attempt_state {
            attempt_state.mark_full(why.map(WhyFull));
        }
    }

    pub(crate) fn with_observer(self, observer: Arc<dyn Observer>, backend: &'static str) -> Self {
        self.change(|options| options.observer = Some((observer, backend)))
    }

    /// The key to lock.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// How long to wait.
    #[must_use]
    pub fn wait(&self) -> Wait {
        self.wait
    }

    /// The lease.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.options.ttl
    }

    /// What extends the lease.
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        self.options.renewal
    }

    /// Min time that the lock stays held.
    #[must_use]
    pub fn min_hold(&self) -> Duration {
        self.options.min_hold
    }

    /// Max time that the lock is renewed.
    #[must_use]
    pub fn max_hold(&self) -> Option<Duration> {
        self.options.max_hold
    }

    pub(crate) fn takes_hand_overs(&self) -> bool {
        self.options.takes_hand_overs
    }

    /// The caller, for re-entry.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// The label of the holder that others see.
    #[must_use]
    pub fn label(&self) -> &Label {
        &self.options.label
    }

    /// The ticket to adopt, in place of acquiring the lock anew. For implementors: see
    /// [`PendingRelease::adopt`](crate::PendingRelease::adopt).
    #[must_use]
    pub fn ticket(&self) -> Option<&Ticket> {
        self.options.ticket.as_deref()
    }

    /// The kind of work.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.options.class.as_deref()
    }

    /// Emits the events of this request.
    pub(crate) fn emitter(&self, backend: &'static str) -> EventEmitter {
        EventEmitter {
            backend,
            key: self.named().clone(),
            class: self.options.class.clone(),
            mode: self.mode(),
            observer: self.options.observer.as_ref().map(|(it, _)| Arc::clone(it)),
        }
    }

    /// Refuses a ticket that the request cannot adopt on `backend`.
    pub(crate) fn check_ticket(&self, ticket: &Ticket, backend: &str) -> Result<()> {
        let refused = |message: String| Err(Error::new(ErrorKind::InvalidRequest, message));
        if ticket.backend() != backend {
            let of = ticket.backend().escape_debug();
            return refused(format!("the ticket is one of {of}"));
        }
        if ticket.key() != self.named() {
            return refused("the ticket is one of another key".to_owned());
        }
        if self.mode() != Mode::Exclusive {
            return refused("a ticket is one of an exclusive lock".to_owned());
        }
        Ok(())
    }

    /// Checks the ranges of the durations.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) names the option, its range and its value.
    pub fn validate(&self) -> Result<()> {
        let wrong = |what: &str, range: &str, value: Duration| {
            let message = format!("{what} must be {range}, not {}", shown(value));
            Err(Error::new(ErrorKind::InvalidRequest, message).with_key(&self.key))
        };
        if self.options.ttl < Self::MIN_TTL {
            return wrong("ttl", MIN_TTLS, self.options.ttl);
        }
        if self.options.ttl > Self::MAX_TTL {
            return wrong("ttl", "at most 24h", self.options.ttl);
        }
        if self.options.min_hold > Self::MAX_TTL {
            return wrong("min_hold", "at most 24h", self.options.min_hold);
        }
        if let Some(max_hold) = self.options.max_hold {
            if max_hold.is_zero() {
                return wrong("max_hold", "more than zero", max_hold);
            }
            if max_hold < self.options.min_hold {
                return wrong("max_hold", "at least min_hold", max_hold);
            }
        }
        Ok(())
    }
}

/// The min ttl, where the backend is not known.
const MIN_TTLS: &str =
    "at least 500ms on Redis (not a quorum) and in memory, 2s on etcd and 1s elsewhere";

/// A duration in the largest unit that it is a multiple of.
pub(crate) fn shown(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    match seconds {
        0 if nanos == 0 => "0s".to_owned(),
        _ if nanos > 0 => format!("{duration:?}"),
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shown_in_the_unit_that_it_is_a_multiple_of() {
        for (millis, text) in [
            (0, "0s"),
            (100, "100ms"),
            (1500, "1.5s"),
            (61_000, "61s"),
            (120_000, "2m"),
            (90_000_000, "25h"),
        ] {
            assert_eq!(shown(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_ttl_that_no_backend_accepts_is_told_with_the_min_of_each() {
        let request = AcquireRequest::new(LockKey::new("a").unwrap());
        let error = request.with_ttl(Duration::from_millis(400)).validate();
        assert_eq!(
            error.unwrap_err().message(),
            "ttl must be at least 500ms on Redis (not a quorum) and in memory, 2s on etcd and 1s \
             elsewhere, not 400ms"
        );
    }
}
