use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::key::LockKey;
use crate::label::Label;
use crate::layers::Observer;
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
pub struct AcquireRequest {
    key: LockKey,
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
}

/// Mutex, semaphore or reader-writer lock.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Mode {
    /// One holder.
    #[default]
    Exclusive,
    /// At most `limit` holders at a time, all of whom must name the same limit.
    Permit {
        /// Greatest number of holders, at least 1.
        limit: NonZeroU32,
    },
    /// Any number of holders, and no exclusive one.
    Shared,
}

/// How long to wait for a lock that somebody else holds.
///
/// The wait is one budget for everything: the local queue, the check-out of a connection, the
/// commands in flight.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Wait {
    /// Gives up after this time. The default is 30 s.
    AtMost(Duration),
    /// Waits until the lock is acquired or something fails.
    Forever,
    /// Makes one attempt.
    Never,
}

impl Default for Wait {
    fn default() -> Self {
        Self::AtMost(Duration::from_secs(30))
    }
}

/// Who extends the lease.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Renewal {
    /// The library, at a third of the ttl, until the guard is released or `max_hold` is over.
    #[default]
    Automatic,
    /// The caller, by [`LockGuard::renew`](crate::LockGuard::renew).
    Manual,
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
        Self {
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
        }
    }

    /// Sets the mode. Default: [`Mode::Exclusive`].
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how long to wait. Default: at most 30 s.
    #[must_use]
    pub fn with_wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the lease, 1 s to 24 h. Default: 30 s.
    ///
    /// A shorter lease frees the lock of a crashed holder sooner and survives shorter pauses and
    /// outages; a longer one is the other way round. Backends that are bound to a connection or a
    /// session free the lock with that, and use the ttl for the bounds they state.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets who extends the lease. Default: [`Renewal::Automatic`].
    #[must_use]
    pub fn with_renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = renewal;
        self
    }

    /// Keeps the lock at least this long after it was acquired, even if it is released sooner.
    /// Default: zero, at most 24 h.
    ///
    /// For jobs that must not run twice within a period although their clocks differ. A release
    /// within that time leaves the lease to lapse at its end and does not wait for it.
    #[must_use]
    pub fn with_min_hold(mut self, min_hold: Duration) -> Self {
        self.min_hold = min_hold;
        self
    }

    /// Ends automatic renewal this long after the acquisition; the lock is then lost with
    /// [`LostReason::MaxHold`](crate::LostReason::MaxHold). Default: 1 h. `None` renews without
    /// end, so that a wedged holder keeps the lock for as long as its process lives.
    #[must_use]
    pub fn with_max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.max_hold = max_hold.into();
        self
    }

    /// Lets the request enter a lock that a request with the same owner holds. Default: none.
    #[must_use]
    pub fn with_owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Sets what others see of the holder. Default: host, process id and program.
    #[must_use]
    pub fn with_label(mut self, label: Label) -> Self {
        self.label = label;
        self
    }

    /// Names the kind of work, as a label of metrics. Default: none.
    ///
    /// Give few distinct names (`"payment"`), never the key.
    #[must_use]
    pub fn with_class(mut self, class: impl Into<Arc<str>>) -> Self {
        self.class = Some(class.into());
        self
    }

    /// Replaces the key. For layers.
    #[must_use]
    pub fn with_key(mut self, key: LockKey) -> Self {
        self.key = key;
        self
    }

    /// For what is below the layer that keeps the count of re-entries.
    pub(crate) fn without_owner(mut self) -> Self {
        self.owner = None;
        self
    }

    pub(crate) fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The key to lock.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How long to wait.
    #[must_use]
    pub fn wait(&self) -> Wait {
        self.wait
    }

    /// The lease.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Who extends the lease.
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        self.renewal
    }

    /// Least time that the lock stays taken.
    #[must_use]
    pub fn min_hold(&self) -> Duration {
        self.min_hold
    }

    /// Longest time that the lock is renewed.
    #[must_use]
    pub fn max_hold(&self) -> Option<Duration> {
        self.max_hold
    }

    /// Who asks, for re-entry.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// What others see of the holder.
    #[must_use]
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// The kind of work.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    pub(crate) fn class_shared(&self) -> Option<Arc<str>> {
        self.class.clone()
    }

    pub(crate) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.observer.as_ref()
    }

    /// Checks the ranges of the durations.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) names the option, its range and its value.
    pub fn validate(&self) -> Result<()> {
        let wrong = |what: &str, range: &str, value: Duration| {
            let message = format!("{what} must be {range}, not {value:?}");
            Err(Error::new(ErrorKind::InvalidRequest, message).with_key(&self.key))
        };
        if self.ttl < Self::MIN_TTL || self.ttl > Self::MAX_TTL {
            return wrong("ttl", "between 1s and 24h", self.ttl);
        }
        if self.min_hold > Self::MAX_TTL {
            return wrong("min_hold", "at most 24h", self.min_hold);
        }
        if let Some(max_hold) = self.max_hold {
            if max_hold.is_zero() {
                return wrong("max_hold", "more than zero", max_hold);
            }
            if max_hold < self.min_hold {
                return wrong("max_hold", "at least min_hold", max_hold);
            }
        }
        Ok(())
    }
}
