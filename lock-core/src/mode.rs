//! How a lock is requested: mode, wait and renewal.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

/// Mutex, semaphore or reader-writer lock.
///
/// # Examples
///
/// ```
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let reader = locks.request("page").shared().acquire().await?;
/// let another = locks.request("page").shared().acquire().await?;
/// assert!(locks.try_lock("page").await?.is_none()); // a writer waits for both
///
/// reader.release().await?;
/// another.release().await?;
/// assert!(locks.try_lock("page").await?.is_some());
/// # assert_eq!(Mode::default(), Mode::Exclusive);
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Mode {
    /// One holder. The default.
    #[doc(alias = "mutex")]
    #[default]
    Exclusive,
    /// One of several holders. The request is granted when fewer than `limit` holders have the
    /// lock; later requests with larger limits may join. Where waiters queue, earlier waiters go
    /// first.
    #[doc(alias = "semaphore")]
    Permit {
        /// Max number of holders when the request is granted, itself included; at least 1.
        limit: NonZeroU32,
    },
    /// Any number of holders, and no exclusive one.
    #[doc(alias = "rwlock")]
    Shared,
}

/// How long to wait for a lock that is held.
///
/// One limit covers everything: the local queue, the connection checkout and the commands in flight.
/// An attempt that the server has not answered yet has at least 100 ms, so that even a short wait can acquire
/// a free lock: such a wait ends up to 100 ms late. Some backends wait longer for a last reply, as their pages
/// say.
/// [`RequestBuilder::acquire`](crate::RequestBuilder::acquire) may look up the holder after the
/// wait has ended.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let _held = locks.lock("job").await?;
/// for wait in [Wait::Never, Wait::AtMost(Duration::from_millis(10))] {
///     let refused = locks.request("job").wait(wait).acquire().await;
///     assert_eq!(refused.expect_err("the lock is held").kind(), ErrorKind::Contended);
/// }
/// assert_eq!(Wait::default(), Wait::AtMost(Duration::from_secs(30)));
/// # Ok(()) }
/// ```
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

impl Wait {
    /// Whether the request waits at all: [`Never`](Wait::Never) and a limit of zero do not.
    #[must_use]
    pub fn waits(self) -> bool {
        match self {
            Self::AtMost(limit) => !limit.is_zero(),
            Self::Forever => true,
            Self::Never => false,
        }
    }

    /// The deadline of a wait that begins now; `None` for [`Forever`](Wait::Forever), for
    /// [`Never`](Wait::Never) and for a limit beyond the clock. Check [`waits`](Wait::waits) first.
    #[must_use]
    pub fn deadline(self) -> Option<Instant> {
        match self {
            Self::AtMost(limit) => Instant::now().checked_add(limit),
            Self::Forever | Self::Never => None,
        }
    }

    /// The end of the message of a wait that has timed out, such as `, waited 300ms`; empty without a limit.
    ///
    /// In whole milliseconds, rounded up: what earlier keys left of a limit is not a round number.
    pub(crate) fn waited(self) -> String {
        match self {
            Self::AtMost(limit) if !limit.is_zero() => {
                let millis = Duration::from_millis(limit.subsec_nanos().div_ceil(1_000_000).into());
                let limit = Duration::from_secs(limit.as_secs()).saturating_add(millis);
                format!(", waited {limit:?}")
            }
            _ => String::new(),
        }
    }
}

/// What extends the lease.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let request = locks.request("export").ttl(Duration::from_secs(10)).manual_renewal();
/// let guard = request.acquire().await?;
/// let before = guard.valid_until();
/// for _page in 0..3 {
///     guard.renew().await?; // ten seconds for this page
/// }
/// assert!(guard.valid_until() > before);
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Renewal {
    /// The library renews, at a third of the ttl, until the guard is released or `max_hold` is
    /// over. The default.
    #[default]
    Automatic,
    /// The caller renews, by [`LockGuard::renew`](crate::LockGuard::renew).
    Manual,
}

/// Longest lease that is accepted.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_in_whole_milliseconds() {
        let nanos = |nanos| Wait::AtMost(Duration::from_nanos(nanos));
        for (wait, text) in [
            (nanos(299_999_590), ", waited 300ms"),
            (nanos(1), ", waited 1ms"),
            (nanos(1_500_000_000), ", waited 1.5s"),
            (nanos(1_999_999_999), ", waited 2s"),
            (nanos(0), ""),
            (Wait::Forever, ""),
            (Wait::Never, ""),
        ] {
            assert_eq!(wait.waited(), text, "{wait:?}");
        }
    }
}
