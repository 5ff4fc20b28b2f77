//! Locks as the benchmark sees them.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polylock::{AcquireRequest, DistributedLock, ErrorKind, LockGuard, LockKey, Released, Wait};
use serde::{Deserialize, Serialize};

/// Something with locks that can be measured: a client, of which all contenders of a process have
/// a clone.
///
/// The loop around it is compiled for each of them, so that the benchmark costs little.
pub trait Subject: Clone + Send + Sync + 'static {
    /// A lock, prepared so that its name costs nothing at each acquisition.
    type Key: Clone + Send + Sync + 'static;
    /// What a holder has.
    type Held: Send + 'static;

    /// Prepares the lock with this name, and with leases of this length where it has leases.
    ///
    /// # Errors
    ///
    /// If the name cannot be that of a lock.
    fn key(&self, name: &str, ttl: Duration) -> Result<Self::Key, Failure>;

    /// Acquires the lock, and waits for it at most as long as `wait` says. `None` if another holder
    /// has it at the end of that time.
    ///
    /// # Errors
    ///
    /// If the server refuses it, or does not answer.
    ///
    /// # Cancel safety
    ///
    /// A lock that was granted meanwhile stays taken for one ttl at most, or until the client is
    /// dropped where there are no leases.
    fn acquire(
        &self,
        key: &Self::Key,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<Self::Held>, Failure>> + Send;

    /// The fencing token of the holder; none by default.
    fn token(held: &Self::Held) -> Option<u64> {
        let _has_none = held;
        None
    }

    /// Releases the lock.
    ///
    /// # Errors
    ///
    /// If it is unknown whether the lock is free, and of the kind `lost` if another holder had it
    /// already.
    ///
    /// # Cancel safety
    ///
    /// The lock stays taken for one ttl at most, or until the client is dropped where there are no
    /// leases.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Locks of this project, as a user calls them.
#[derive(Clone, Debug)]
pub(crate) struct SubjectLocks(pub(crate) Arc<dyn DistributedLock>);

impl Subject for SubjectLocks {
    type Key = AcquireRequest;
    type Held = LockGuard;

    fn key(&self, name: &str, ttl: Duration) -> Result<AcquireRequest, Failure> {
        Ok(AcquireRequest::new(LockKey::new(name)?).with_ttl(ttl))
    }

    async fn acquire(
        &self,
        key: &AcquireRequest,
        wait: Duration,
    ) -> Result<Option<LockGuard>, Failure> {
        let request = key.clone().with_wait(Wait::AtMost(wait));
        match self.0.acquire(&request).await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn token(held: &LockGuard) -> Option<u64> {
        held.fencing_token().map(u64::from)
    }

    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        // A holder without a signaled loss before it calls release held until then, whatever the reply. The
        // signal is read afterwards, so that no release reads the clock first.
        let lost = held.lost();
        match held.release().await {
            Ok(Released::AlreadyLost) if lost.reason().is_some() => Err(Failure::new(
                LOST_BEFORE,
                "the lock was lost, and its holder told",
            )),
            Ok(Released::AlreadyLost) => Err(Failure::new(LOST, "the server knew another holder")),
            Ok(_) => Ok(()),
            Err(error) if lost.reason().is_some() => Err(Failure::of(LOST_BEFORE, &error)),
            Err(error) => Err(error.into()),
        }
    }
}

/// What went wrong with a lock or with a run.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Failure {
    kind: String,
    message: String,
}

impl Failure {
    /// A failure of a kind, one or two words by which they are counted, and with a message that
    /// has no secrets in it.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: message.into(),
        }
    }

    /// The failure of something else, with its causes, each once.
    pub fn of(kind: impl Into<String>, error: &(dyn Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = error.source();
        }
        Self::new(kind, message)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What happened.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Says where it happened, before what happened, unless the message begins with it.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        let place = format!("{place}: ");
        if !self.message.starts_with(&place) {
            self.message.insert_str(0, &place);
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

impl From<polylock::Error> for Failure {
    fn from(error: polylock::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Contended => "contended",
            ErrorKind::Denied => "denied",
            ErrorKind::InvalidConfig | ErrorKind::InvalidKey | ErrorKind::InvalidRequest => INVALID,
            ErrorKind::Lost => LOST,
            ErrorKind::Protocol => "protocol",
            ErrorKind::QueueFull => "queue full",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Unsupported => UNSUPPORTED,
            _ => "other",
        };
        Self::of(kind, &error)
    }
}

/// Kind of what was asked for wrongly.
pub(crate) const INVALID: &str = "invalid";
/// Kind of a release where another holder had the lock already, or none.
pub(crate) const LOST: &str = "lost";
/// Kind of a release by a holder that was told before that it holds no more.
pub(crate) const LOST_BEFORE: &str = "lost before";
/// Kind of what a server says of itself, and not of the way to it.
pub(crate) const REFUSED: &str = "refused";
/// Kind of what the target cannot do.
pub(crate) const UNSUPPORTED: &str = "unsupported";

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_failure_says_each_cause_and_the_backend_once() {
        let refused = || io::Error::other("refused");
        let inner = polylock::Error::new(ErrorKind::Unavailable, "cannot connect to a:1: refused")
            .with_source(io::Error::other(refused()));
        let outer = polylock::Error::new(ErrorKind::Unavailable, "no answer")
            .with_backend("redis")
            .with_source(inner);
        let failure = Failure::from(outer).at("redis");
        let message = "redis: no answer: cannot connect to a:1: refused";
        assert_eq!(failure.message(), message);
        let failure = Failure::new(REFUSED, "no answer").at("redis");
        assert_eq!(failure.message(), "redis: no answer");
    }
}
