use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::event::{Observer, OfPart};
use crate::key::LockKey;
use crate::label::Label;
use crate::layers::AttemptState;
use crate::mode::{Mode, Renewal, Wait};
use crate::owner::Owner;

/// What to acquire, and how.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use lock_core::{AcquireRequest, LockKey, Mode, Wait};
///
/// let request = AcquireRequest::new(LockKey::new("report")?)
///     .with_mode(Mode::Shared)
///     .with_wait(Wait::AtMost(Duration::from_secs(2)))
///     .with_ttl(Duration::from_secs(10));
/// assert_eq!(request.ttl(), Duration::from_secs(10));
/// # Ok::<(), lock_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AcquireRequest(Arc<Options>);

/// Shared between the layers that pass a request on; copied on write.
#[derive(Clone, Debug)]
struct Options {
    key: LockKey,
    /// The key as the user named it, where a layer stores it under another one.
    named: LockKey,
    mode: Mode,
    wait: Wait,
    ttl: Duration,
    renewal: Renewal,
    min_hold: Duration,
    max_hold: Option<Duration>,
    owner: Option<Owner>,
    label: Label,
    class: Option<Arc<str>>,
    observer: Option<Arc<dyn Observer>>,
    attempt_state: Option<Arc<AttemptState>>,
}

impl AcquireRequest {
    /// Lease of a request that names none.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

    /// Shortest lease that is accepted; one below 5 s is warned of, because a pause of a busy
    /// machine or a fail-over of the server then costs the lock.
    pub const MIN_TTL: Duration = Duration::from_secs(1);

    /// Longest lease that is accepted.
    pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

    /// Time after which a lock is taken from a holder that keeps renewing, unless the request says
    /// otherwise.
    pub const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(60 * 60);

    /// Asks for an exclusive lock on `key` with the defaults of each option.
    #[must_use]
    pub fn new(key: LockKey) -> Self {
        Self(Arc::new(Options {
            named: key.clone(),
            key,
            mode: Mode::default(),
            wait: Wait::default(),
            ttl: Self::DEFAULT_TTL,
            renewal: Renewal::default(),
            min_hold: Duration::ZERO,
            max_hold: Some(Self::DEFAULT_MAX_HOLD),
            owner: None,
            label: Label::of_this_process(),
            class: None,
            observer: None,
            attempt_state: None,
        }))
    }

    fn change(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(Arc::make_mut(&mut self.0));
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
        self.change(|options| options.wait = wait)
    }

    /// Sets the lease, 1 s to 24 h. Default: 30 s.
    ///
    /// A shorter lease frees the lock of a crashed holder sooner and survives shorter pauses and
    /// outages; a longer one is the other way round. Backends that are bound to a connection or a
    /// session free the lock with that, and use the ttl for the bounds they state.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        self.change(|options| options.ttl = ttl)
    }

    /// Sets what extends the lease. Default: [`Renewal::Automatic`].
    #[must_use]
    pub fn with_renewal(self, renewal: Renewal) -> Self {
        self.change(|options| options.renewal = renewal)
    }

    /// Keeps the lock at least this long after it was acquired, even if it is released sooner.
    /// Default: zero, at most 24 h.
    ///
    /// For jobs that must not run twice within a period although their clocks differ. A release
    /// within that time lets the lease expire and does not wait for it. Where a lock
    /// lives with a session or a connection this process keeps it, and
    /// [`shutdown`](crate::DistributedLock::shutdown) waits for that.
    #[must_use]
    pub fn with_min_hold(self, min_hold: Duration) -> Self {
        self.change(|options| options.min_hold = min_hold)
    }

    /// Ends automatic renewal this long after the acquisition; the lock is then lost with
    /// [`LostReason::MaxHold`](crate::LostReason::MaxHold). Default: 1 h. `None` renews without
    /// end, so that a wedged holder keeps the lock for as long as its process lives.
    #[must_use]
    pub fn with_max_hold(self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.change(|options| options.max_hold = max_hold.into())
    }

    /// Lets the request enter a lock that a request with the same owner holds. Default: none.
    #[must_use]
    pub fn with_owner(self, owner: Owner) -> Self {
        self.change(|options| options.owner = Some(owner))
    }

    /// Sets what others see of the holder. Default: host, process id and program.
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
        self.change(|options| (options.key, options.named) = (key.clone(), key))
    }

    /// Stores the lock under another key than the one that the user sees.
    pub(crate) fn stored_as(self, key: LockKey) -> Self {
        self.change(|options| options.key = key)
    }

    /// The key as the user named it.
    pub(crate) fn named(&self) -> &LockKey {
        &self.0.named
    }

    /// For what is below the local queue, which bounds the wait and counts the re-entries.
    pub(crate) fn in_attempt(self, wait: Wait, attempt_state: &Arc<AttemptState>) -> Self {
        self.change(|options| {
            options.wait = wait;
            options.owner = None;
            options.attempt_state = Some(Arc::clone(attempt_state));
        })
    }

    /// Notes that another client holds the lock. For implementors.
    ///
    /// A backend calls it as soon as the server says so, each time or once, on the request that it
    /// was given: a layer above whose wait ends knows then that the server has answered, and reports
    /// [`Contended`](ErrorKind::Contended) and not [`Unavailable`](ErrorKind::Unavailable).
    pub fn mark_contended(&self) {
        if let Some(attempt_state) = &self.0.attempt_state {
            attempt_state.mark_contended();
        }
    }

    /// Notes that the server does not answer any more. For implementors.
    ///
    /// A backend that goes on to ask calls it, so that a layer above whose wait ends meanwhile does
    /// not report what the server said before. [`mark_contended`](AcquireRequest::mark_contended) undoes it.
    pub fn mark_unresponsive(&self) {
        if let Some(attempt_state) = &self.0.attempt_state {
            attempt_state.mark_unresponsive();
        }
    }

    pub(crate) fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        self.change(|options| options.observer = Some(observer))
    }

    /// For a part of this request; events are sent for the whole.
    pub(crate) fn for_a_part(self, wait: Wait) -> Self {
        self.change(|options| {
            options.wait = wait;
            options.min_hold = Duration::ZERO;
            options.max_hold = None;
            // The second part waits while the first is held.
            options.renewal = Renewal::Automatic;
            options.observer = options.observer.take().map(OfPart::of);
        })
    }

    /// The key to lock.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.0.key
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.mode
    }

    /// How long to wait.
    #[must_use]
    pub fn wait(&self) -> Wait {
        self.0.wait
    }

    /// The lease.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.0.ttl
    }

    /// What extends the lease.
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        self.0.renewal
    }

    /// Least time that the lock stays taken.
    #[must_use]
    pub fn min_hold(&self) -> Duration {
        self.0.min_hold
    }

    /// Longest time that the lock is renewed.
    #[must_use]
    pub fn max_hold(&self) -> Option<Duration> {
        self.0.max_hold
    }

    /// The caller, for re-entry.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        self.0.owner.as_ref()
    }

    /// What others see of the holder.
    #[must_use]
    pub fn label(&self) -> &Label {
        &self.0.label
    }

    /// The kind of work.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.0.class.as_deref()
    }

    pub(crate) fn class_shared(&self) -> Option<Arc<str>> {
        self.0.class.clone()
    }

    pub(crate) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.0.observer.as_ref()
    }

    /// Checks the ranges of the durations.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) names the option, its range and its value.
    pub fn validate(&self) -> Result<()> {
        let wrong = |what: &str, range: &str, value: Duration| {
            let value = match value.is_zero() {
                true => "0s".to_owned(),
                false => format!("{value:?}"),
            };
            let message = format!("{what} must be {range}, not {value}");
            Err(Error::new(ErrorKind::InvalidRequest, message).with_key(&self.0.key))
        };
        if self.0.ttl < Self::MIN_TTL || self.0.ttl > Self::MAX_TTL {
            return wrong("ttl", "between 1s and 24h", self.0.ttl);
        }
        if self.0.min_hold > Self::MAX_TTL {
            return wrong("min_hold", "at most 24h", self.0.min_hold);
        }
        if let Some(max_hold) = self.0.max_hold {
            if max_hold.is_zero() {
                return wrong("max_hold", "more than zero", max_hold);
            }
            if max_hold < self.0.min_hold {
                return wrong("max_hold", "at least min_hold", max_hold);
            }
        }
        Ok(())
    }
}
