use std::sync::Once;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::key::LockKey;
use crate::mode::Mode;
use crate::request::{AcquireRequest, shown};

/// What a backend, or a stack of layers on one, can do.
///
/// A plain value: a layer may narrow or widen what it wraps. A request that needs more fails at
/// once with [`Unsupported`](ErrorKind::Unsupported), before anything is sent.
///
/// # Examples
///
/// A service that relies on fencing tokens refuses to start without them:
///
/// ```
/// use polylock_core::prelude::*;
/// use polylock_core::{Fencing, Result};
///
/// fn check(locks: &dyn DistributedLock) -> Result<()> {
///     let capabilities = locks.capabilities();
///     if capabilities.fencing < Fencing::Strong {
///         let message = format!("{} has no reliable fencing tokens", capabilities.backend);
///         return Err(Error::new(ErrorKind::Unsupported, message));
///     }
///     Ok(())
/// }
///
/// check(&polylock_core::memory::Memory::new())?;
/// # Ok::<(), Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capabilities {
    /// Name of the backend, such as `"sqlite"`.
    pub backend: &'static str,
    /// What ends a lock that is never released.
    pub bound: LockLifetime,
    /// Whether a held exclusive lock can become a shared one without a gap.
    pub downgrade: bool,
    /// Whether waiters are served in the order of their arrival.
    pub fair: bool,
    /// How far the order of fencing tokens can be trusted.
    pub fencing: Fencing,
    /// Whether a new token is never below the time of the server's clock, in microseconds since
    /// 1970, read to the millisecond or better. Tokens of two such servers are comparable to within
    /// the difference of their clocks. After a hand-over inside a process, the token may date from
    /// when the lease was acquired.
    pub clock_tokens: bool,
    /// Whether holders can be listed, inspected and broken.
    pub admin: bool,
    /// Longest key in bytes.
    pub max_key_len: usize,
    /// Max locks that a client can hold at once: the parameter `connections` where each lock needs a
    /// connection, else unlimited, which is the default.
    pub max_locks: usize,
    /// Min ttl of a request, 1 s unless the backend allows less. A shorter one is refused as
    /// [`InvalidRequest`](ErrorKind::InvalidRequest), which gives the reason.
    pub min_ttl: Duration,
    /// Whether [`Mode::Permit`] is served.
    pub permits: bool,
    /// Whether a request with the [`Owner`](crate::Owner) of the holder re-enters the lock.
    pub reentry: bool,
    /// Whether [`Mode::Shared`] is served.
    pub shared: bool,
    /// Whether the lock of a [`Ticket`](crate::Ticket) can be adopted.
    pub tickets: bool,
    /// How a waiter learns that the lock is free.
    pub waiting: Waiting,
}

/// What ends a lock that is never released.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LockLifetime {
    /// The database connection.
    Connection,
    /// The expiry of a lease.
    Lease,
    /// The session of the client, after its timeout.
    Session,
}

impl LockLifetime {
    /// What ends the lock that is held while two are: the one that can take longer.
    pub(crate) fn longer(self, other: Self) -> Self {
        let rank = |bound: &Self| match bound {
            Self::Connection => 0,
            Self::Session => 1,
            Self::Lease => 2,
        };
        std::cmp::max_by_key(self, other, rank)
    }
}

/// How far the order of fencing tokens can be trusted; ordered from weak to strong.
///
/// The example of [`Capabilities`] compares it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Fencing {
    /// There are no tokens.
    Unavailable,
    /// Tokens increase, except where the server loses acknowledged writes and its clock is behind.
    BestEffort,
    /// Tokens increase under every fault that the backend's documentation lists.
    ///
    /// One hand-over is an exception: that inside a process which has not noticed yet that its lock was
    /// broken, adopted or otherwise taken away. Its token can be smaller than that of the new holder, so
    /// that a resource that checks tokens refuses it.
    Strong,
}

/// How a waiter learns that the lock is free.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Waiting {
    /// The waiter polls, with jitter.
    Poll,
    /// The server notifies it.
    Push,
}

/// Once per process: a service with a short ttl asks for it again and again.
fn warn_of_short_ttl(request: &AcquireRequest) {
    static ONCE: Once = Once::new();
    if request.ttl() < AcquireRequest::SHORT_TTL {
        let (key, ttl) = (request.key().as_str(), request.ttl());
        ONCE.call_once(|| {
            tracing::warn!(
                key,
                ?ttl,
                "a lease below 5s is lost in a short pause or failover"
            );
        });
    }
}

impl Capabilities {
    /// The minimum of every backend: an exclusive lock bound to a lease, no tokens, polled.
    ///
    /// For implementors, which enable what they support:
    ///
    /// ```
    /// use polylock_core::{Capabilities, Fencing};
    ///
    /// let mut capabilities = Capabilities::minimal("example");
    /// capabilities.fencing = Fencing::Strong;
    /// capabilities.shared = true;
    /// ```
    #[must_use]
    pub const fn minimal(backend: &'static str) -> Self {
        Self {
            backend,
            bound: LockLifetime::Lease,
            downgrade: false,
            fair: false,
            fencing: Fencing::Unavailable,
            clock_tokens: false,
            admin: false,
            max_key_len: LockKey::MAX_STORED_LEN,
            max_locks: usize::MAX,
            min_ttl: Duration::from_secs(1),
            permits: false,
            reentry: false,
            shared: false,
            tickets: false,
            waiting: Waiting::Poll,
        }
    }

    /// Refuses a request that needs a missing capability, or whose durations are out of range.
    ///
    /// Every implementation of [`DistributedLock`](crate::DistributedLock) that talks to a server
    /// calls it before it sends anything.
    ///
    /// # Errors
    ///
    /// - [`Unsupported`](ErrorKind::Unsupported) names the backend and what it lacks.
    /// - [`InvalidKey`](ErrorKind::InvalidKey) if the key is longer than the backend carries.
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest) if a duration is out of its range.
    pub fn check(&self, request: &AcquireRequest) -> Result<()> {
        // First, because this min is the one that counts here.
        if request.ttl() < self.min_ttl {
            return Err(self.too_short(request));
        }
        request.validate()?;
        warn_of_short_ttl(request);
        let lacking = |what: &str| {
            let message = format!("{what} are not supported by this backend");
            let error = Error::new(ErrorKind::Unsupported, message);
            Err(error.with_backend(self.backend).with_key(request.key()))
        };
        match request.mode() {
            Mode::Shared if !self.shared => return lacking("shared locks"),
            Mode::Permit { .. } if !self.permits => return lacking("permits"),
            _ => {}
        }
        if request.ticket().is_some() && !self.tickets {
            return lacking("tickets");
        }
        if request.owner().is_some() && !self.reentry {
            return lacking("re-entrant locks");
        }
        if request.key().as_bytes().len() > self.max_key_len {
            return Err(Error::invalid_key(format!(
                "this backend carries keys of at most {} bytes, namespace included",
                self.max_key_len
            ))
            .with_key(request.key()));
        }
        Ok(())
    }

    fn too_short(&self, request: &AcquireRequest) -> Error {
        let Self {
            backend, min_ttl, ..
        } = self;
        let reason = match self.bound {
            LockLifetime::Lease => {
                "a renewal may take a fifth of the lease, and a shorter time is too little for it here"
            }
            LockLifetime::Connection | LockLifetime::Session => {
                "its locks live with a connection or a session, whose timeout decides when the lock of a \
                 dead holder is free"
            }
        };
        let [min, max, ttl] = [*min_ttl, AcquireRequest::MAX_TTL, request.ttl()].map(shown);
        let message =
            format!("ttl must be between {min} and {max} on {backend}, not {ttl}: {reason}");
        Error::new(ErrorKind::InvalidRequest, message).with_key(request.key())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::owner::Owner;

    fn request() -> AcquireRequest {
        AcquireRequest::new(LockKey::new("a").expect("it is a key"))
    }

    #[test]
    fn a_short_ttl_is_refused_with_the_min_of_the_backend() {
        let capabilities = Capabilities::minimal("example");
        // The first one is too short on any backend.
        for (millis, shown) in [(0, "0s"), (100, "100ms"), (999, "999ms")] {
            let ttl = Duration::from_millis(millis);
            let error = capabilities.check(&request().with_ttl(ttl));
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            let range = format!("ttl must be between 1s and 24h on example, not {shown}: ");
            assert!(error.message().starts_with(&range), "{error}");
        }
        let ttl = Duration::from_secs(25 * 3600);
        let error = capabilities.check(&request().with_ttl(ttl));
        let message = "ttl must be at most 24h, not 25h";
        assert_eq!(error.unwrap_err().message(), message);
    }

    #[test]
    fn a_refusal_names_the_backend() {
        let capabilities = Capabilities::minimal("example");
        let permit = Mode::Permit {
            limit: NonZeroU32::MIN,
        };
        for (request, what) in [
            (request().with_mode(Mode::Shared), "shared locks"),
            (request().with_mode(permit), "permits"),
            (request().with_owner(Owner::new()), "re-entrant locks"),
        ] {
            let error = capabilities.check(&request).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let text = format!("example: {what} are not supported by this backend (key \"a\")");
            assert_eq!(error.to_string(), text);
        }
    }
}
