use std::fmt;

/// Why a lock was lost.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::LostReason;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let request = locks.request("export").max_hold(Duration::from_millis(50));
/// let guard = request.acquire().await?;
///
/// let endless = guard.run(std::future::pending::<()>()).await;
/// let error = endless.expect_err("the lock is lost after 50 ms");
/// assert_eq!(error.lost_reason(), Some(LostReason::MaxHold));
/// assert_eq!(LostReason::MaxHold.as_str(), "max_hold"); // for logs and metrics
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LostReason {
    /// An administrator broke the lock.
    Broken,
    /// The lease expired: it was not renewed in time, or the process or the machine was paused.
    Expired,
    /// The holder kept the lock for longer than `max_hold`.
    MaxHold,
    /// The session or connection that the lock lived in has ended.
    SessionEnded,
    /// The server no longer knows this holder: another holder has the lock, or the server lost its
    /// data.
    Stolen,
    /// Every renewal failed until the lease expired.
    Unreachable,
}

impl LostReason {
    pub(crate) const ALL: [Self; 6] = [
        Self::Broken,
        Self::Expired,
        Self::MaxHold,
        Self::SessionEnded,
        Self::Stolen,
        Self::Unreachable,
    ];

    /// A number above 0 for each.
    pub(crate) fn code(self) -> u64 {
        self as u64 + 1
    }

    pub(crate) fn from_code(code: u64) -> Self {
        let found = Self::ALL.into_iter().find(|reason| reason.code() == code);
        found.unwrap_or(Self::Stolen)
    }

    /// One word for logs, metrics and JSON, such as `"session_ended"`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Expired => "expired",
            Self::MaxHold => "max_hold",
            Self::SessionEnded => "session_ended",
            Self::Stolen => "stolen",
            Self::Unreachable => "unreachable",
        }
    }

    /// Whether the server may still count this holder as the owner, so that a release is worth
    /// sending.
    pub(crate) fn may_still_be_held(self) -> bool {
        match self {
            Self::Expired | Self::MaxHold | Self::Unreachable => true,
            Self::Broken | Self::SessionEnded | Self::Stolen => false,
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broken => "an administrator broke it",
            Self::Expired => "its lease expired",
            Self::MaxHold => "it was held for longer than max_hold",
            Self::SessionEnded => "its session ended",
            Self::Stolen => "the server does not know this holder any more",
            Self::Unreachable => "it could not be renewed, the server is unreachable",
        })
    }
}
