//! The guard of a held lock.

mod atomic;
mod entries;
mod expiring;
mod held_lease;
#[cfg(all(test, polylock_loom))]
mod loom;
mod lost;
mod multi;
mod pending;
mod release;
mod ticket;
mod undelivered;
mod validity;

use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::{LeaseId, Moment, catch_panic};
use crate::error::{Error, ErrorKind, Result};
use crate::key::LockKey;
use crate::lease::{Liveness, Released, renew};
use crate::lost_reason::LostReason;
use crate::request::AcquireRequest;
use crate::token::FencingToken;

use self::release::{Detachable, release_both, release_in_background, release_lease};

pub(crate) use self::held_lease::HeldLease;
pub(crate) use self::multi::first;
pub(crate) use self::release::{HandOver, ReleaseHook, ReleasedLease};
pub(crate) use self::undelivered::Undelivered;

pub use self::expiring::Expiring;
pub use self::lost::LostSignal;
pub use self::multi::MultiGuard;
pub use self::pending::PendingRelease;
pub use self::ticket::IntoTicketError;

/// A held lock.
///
/// While [`is_held`](LockGuard::is_held) is true, no conflicting guard of the same key is held. This
/// requires that the backend keeps acknowledged writes, that the clocks of client and server run at
/// the same rate to within a tenth (ZooKeeper: a sixteenth), and that the lock is not taken away: broken,
/// adopted, deleted, or ended with its session on the server. [`LostSignal`] says when the holder learns
/// of that. `docs/guarantees.md` lists all conditions, and what each backend keeps under which fault. A
/// paused process may continue its work after the lock is lost: send
/// [`fencing_token`](LockGuard::fencing_token) with every write, and let the resource refuse smaller
/// tokens.
///
/// # Dropping
///
/// Dropping the guard releases the lock in the background. The drop neither blocks nor panics, with or
/// without a runtime. Call [`release`](LockGuard::release) to wait for the reply, and
/// [`DistributedLock::shutdown`](crate::DistributedLock::shutdown) before the process ends.
///
/// # Examples
///
/// ```
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let guard = locks.lock("orders/42").await?;
/// let total = guard.run(async { 40 + 2 }).await?;
/// assert_eq!(total, 42);
/// assert_eq!(guard.release().await?, Released::Clean);
/// # Ok(()) }
/// ```
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    /// Taken when the guard ends, so that `Drop` finds it empty.
    hold: Option<Arc<HeldLease>>,
}

impl LockGuard {
    pub(crate) fn new(hold: Arc<HeldLease>) -> Self {
        Self { hold: Some(hold) }
    }

    /// The locked key, without a namespace.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        self.hold().named()
    }

    /// The token to send with every write to the protected resource; `None` if the backend has none
    /// ([`Fencing::Unavailable`](crate::Fencing::Unavailable)).
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold().token()
    }

    /// The id of the acquisition. Another process can renew or release the lease with it, through
    /// [`LockAdmin`](crate::admin::LockAdmin). `None` if the lock lives with a session or a connection, or
    /// is held on two backends. It is a capability: anyone who knows it can release the lock.
    #[must_use]
    pub fn lease_id(&self) -> Option<LeaseId> {
        match &self.hold().liveness {
            Liveness::Renewed { id, .. } if !self.hold().is_on_two_backends() => Some(*id),
            _ => None,
        }
    }

    /// Whether the lock is held, by the clock of this machine.
    ///
    /// True can turn false at any moment; false is final.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold().is_held()
    }

    /// The deadline of the lock unless it is renewed, no later than the end of its max hold; the current time if
    /// it is lost. `None` if it lives with a session or a connection that sets no deadline: only
    /// [`max_hold_left`](Self::max_hold_left) limits it then.
    ///
    /// Compute it again instead of storing it: the clock of an [`Instant`] may stand still while the machine is
    /// suspended, and the lease expires meanwhile. [`is_held`](Self::is_held), [`run`](Self::run) and
    /// [`expiring`](Self::expiring) count that time.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        self.hold().valid_until()
    }

    /// The signal that the lock is lost; it outlives the guard.
    #[must_use]
    pub fn lost(&self) -> LostSignal {
        LostSignal::new(Arc::clone(self.hold()))
    }

    /// Time until [`max_hold`](AcquireRequest::with_max_hold) ends the lock, renewed or not; `None` without
    /// that limit. A guard that re-enters has the limit of the first acquisition.
    #[must_use]
    pub fn max_hold_left(&self) -> Option<Duration> {
        let (until, now) = (self.hold().max_until, self.hold().engine.now());
        (until != Moment::NEVER).then(|| until.since(now))
    }

    /// A future that is ready when the lock expires, or its max hold ends, in `ahead` or less, or when it is
    /// no longer held.
    ///
    /// A renewal postpones the end of the lease. Where a waiter gets a first lease that is shorter than the ttl
    /// (Redis), the first renewal extends it soon: until then `ahead` is at most two fifths of that lease, unless
    /// the renewal fails. For work that must stop before the lock is lost.
    pub fn expiring(&self, ahead: Duration) -> Expiring {
        Expiring::new(Arc::clone(self.hold()), ahead)
    }

    /// Runs `work` for as long as the lock is held.
    ///
    /// The clock is read before each poll of `work`, so that a process that was paused beyond its lease
    /// does not continue. `work` can stop only where it awaits; writes in flight still need
    /// [`fencing_token`](LockGuard::fencing_token).
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) if the lock was lost before `work` was done. `work` is dropped by
    /// then; it may have had effects.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`; the lock stays held by the guard.
    pub async fn run<W: Future>(&self, work: W) -> Result<W::Output> {
        let hold = self.hold();
        let done = run_while_held(work, hold.lost(), || hold.lost_reason());
        done.await.map_err(|reason| self.lost_error(reason))
    }

    /// Extends the lease to at least its ttl from now, for [`Renewal::Manual`](crate::Renewal::Manual) and
    /// wherever else a fresh lease is needed.
    ///
    /// On a lock without a time limit it only checks that the lock is held.
    ///
    /// # Errors
    ///
    /// - [`Lost`](ErrorKind::Lost) if the lock is lost.
    /// - [`Unavailable`](ErrorKind::Unavailable) if the server did not answer in time; the lease
    ///   lasts as long as before at least.
    ///
    /// # Cancel safety
    ///
    /// The lease may or may not have been extended; the guard keeps the older deadline.
    pub async fn renew(&self) -> Result<()> {
        self.renew_each(|hold| Ok(hold.timing.ttl())).await
    }

    /// Extends the lease once, so that it lasts for at least `ttl`, counted from before the request.
    ///
    /// For a step without renewals, such as a snapshot that stops the process, and before the machine is
    /// suspended. The lease is never shortened: automatic renewals continue with the ttl of the request.
    /// They detect a loss, and take effect when the extension is over. A `ttl` below that of the request
    /// is raised to it. As with any lease, the last tenth is reserved: see
    /// [`valid_until`](Self::valid_until).
    ///
    /// After a crash the lock stays held for the rest of `ttl`. A release frees it at once. An extended
    /// lease is released at the server and never handed over, even if tasks of this process wait. For a
    /// lock on two backends, both leases are extended.
    ///
    /// # Errors
    ///
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest) if `ttl` is longer than 24 h, than the max lease of
    ///   the backend (the `rejoin-delay` of a quorum of Redis masters), or than the rest of
    ///   [`max_hold`](AcquireRequest::with_max_hold), 1 h from the acquisition by default.
    /// - [`Lost`](ErrorKind::Lost) if the lock is lost, which is final.
    /// - [`Unavailable`](ErrorKind::Unavailable) if the server did not answer in time; the lease
    ///   lasts as long as before at least.
    /// - [`Unsupported`](ErrorKind::Unsupported) if the lock lives with a session or a connection
    ///   ([`Capabilities::bound`](crate::Capabilities)): its timeout is the lease.
    ///
    /// # Cancel safety
    ///
    /// The lease may or may not have been extended; the guard keeps the older deadline, and the lock of a
    /// process that crashes may stay taken for `ttl`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use polylock_core::prelude::*;
    /// use tokio::time::Instant;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
    /// let locks = polylock_core::memory::Memory::new();
    /// let guard = locks.lock("volumes/7").await?;
    /// guard.renew_for(Duration::from_secs(600)).await?;
    /// let minutes = |n: u64| Instant::now() + Duration::from_secs(n * 60);
    /// assert!(guard.valid_until().is_some_and(|until| until > minutes(8)));
    /// // ... freeze the volume, with this process on it ...
    /// guard.release().await?; // free at once
    /// # Ok(()) }
    /// ```
    #[doc(alias = "extend")]
    pub async fn renew_for(&self, ttl: Duration) -> Result<()> {
        self.renew_each(|hold| hold.check_extension(ttl)).await
    }

    /// Renews the lease, or both leases of a lock on two backends, for what `ttl_of` returns for each. If it
    /// refuses one, neither is renewed.
    async fn renew_each(
        &self,
        ttl_of: impl Fn(&HeldLease) -> Result<Duration> + Send + Sync,
    ) -> Result<()> {
        self.ensure_held()?;
        let hold = self.hold();
        let ttl_of = |hold: &HeldLease| ttl_of(hold).map_err(|error| self.named(error));
        let ttl = ttl_of(hold)?;
        let renewal = ask_to_renew(Arc::clone(hold), ttl);
        let answer = match hold.counterpart() {
            None => renewal.await,
            Some(other) => {
                let ttl = ttl_of(&other)?;
                let (new, old) = tokio::join!(renewal, ask_to_renew(other, ttl));
                new.and(old)
            }
        };
        self.ensure_held()?;
        answer.map_err(|error| self.named(error))
    }

    /// Fails if the lock is lost; for a last check before an effect that cannot be fenced.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) with the reason.
    pub fn ensure_held(&self) -> Result<()> {
        match self.hold().lost_reason() {
            Some(reason) => Err(self.lost_error(reason)),
            None => Ok(()),
        }
    }

    /// Turns an exclusive lock into a shared one, without a gap for another writer.
    ///
    /// # Errors
    ///
    /// - [`Unsupported`](ErrorKind::Unsupported) where
    ///   [`Capabilities::downgrade`](crate::Capabilities) is false, for a lock that is not
    ///   exclusive, and while another guard of the same owner holds it.
    /// - [`Lost`](ErrorKind::Lost) if the lock is lost.
    /// - [`Unavailable`](ErrorKind::Unavailable) if the server does not answer; the lock is held
    ///   in one mode or the other, and the downgrade can be repeated.
    ///
    /// # Cancel safety
    ///
    /// The downgrade goes on in the background; the lock is held in one mode or the other, and the downgrade
    /// can be repeated.
    pub async fn downgrade(&mut self) -> Result<()> {
        self.ensure_held()?;
        let hold = self.hold();
        let unsupported = |why| Err(Error::new(ErrorKind::Unsupported, why).with_key(self.key()));
        if hold.is_on_two_backends() {
            return unsupported("a lock on two backends cannot be downgraded");
        }
        let is_repeated = hold.entries.is_downgrading();
        if !hold.is_exclusive() && !is_repeated {
            return unsupported("only an exclusive lock can be downgraded");
        }
        // From here on the lease must not be handed to an exclusive waiter of this process.
        if !is_repeated && !hold.entries.make_shared() {
            return unsupported("another guard of the owner counts on the lock being exclusive");
        }
        let downgraded = downgrade(Arc::clone(hold), is_repeated).await;
        downgraded.map_err(|e| e.with_key(self.key()))?;
        self.hold().entries.end_downgrade();
        self.ensure_held()
    }

    /// Releases the lock and waits for the reply.
    ///
    /// If tasks of this process wait for the key, the lease may be handed over to the next one instead.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) if the server did not confirm the release. It is then
    /// retried in the background until the lease has expired: after one ttl, or at the end of a longer
    /// extension or ticket. For a lock that lives with a session or a connection, it is retried until it is
    /// confirmed.
    ///
    /// The same if the future goes on in another tokio runtime than it began in, and the server finds nothing to
    /// release: the first request may have released the lock, or the lock had ended before.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background; only the answer is lost.
    pub async fn release(mut self) -> Result<Released> {
        let hold = self.take();
        let (engine, key) = (hold.engine.clone(), hold.named().clone());
        if !hold.leave() {
            return Ok(match hold.is_held() {
                // An outer guard of the same owner still holds the lock.
                true => Released::Clean,
                false => Released::AlreadyLost,
            });
        }
        // From here on neither lease is renewed, however long the other release takes.
        let old = end_old(&hold);
        let release = release_lease(hold);
        let released = match old {
            Some(old) => release_both(&engine, release, old).await,
            None => Detachable::new(engine, release).await,
        };
        released.map_err(|e| e.with_key(&key))
    }

    /// Stops renewing and sends nothing: the lock stays held until its lease expires, or its session or
    /// connection ends.
    pub fn abandon(mut self) {
        if let Some(hold) = self.hold.take().filter(|hold| hold.leave()) {
            hold.take_old().into_iter().for_each(Self::abandon);
            let given_up = hold.abandon();
            if given_up.is_ok() {
                hold.notify_queue();
            }
            hold.emit_released(given_up.ok().map(|given_up| given_up.at), "abandoned");
        }
    }

    pub(crate) fn hold(&self) -> &Arc<HeldLease> {
        self.hold
            .as_ref()
            .expect("BUG: a guard that ended is out of reach")
    }

    fn take(&mut self) -> Arc<HeldLease> {
        self.hold.take().expect("BUG: a guard ends once")
    }

    pub(crate) fn lost_error(&self, reason: LostReason) -> Error {
        self.named(Error::lost(reason))
    }

    fn named(&self, error: Error) -> Error {
        let backend = self.hold().engine.backend();
        error.with_backend(backend).with_key(self.key())
    }

    // --- For the layers of this crate ---

    /// Combines two held locks, of which `old` was acquired first. Each returns to the local queue of its
    /// own backend, since one queue above both would hand over only one of them.
    pub(crate) fn with_old(self, old: Self, has_token: bool) -> Result<Self> {
        self.hold().tie(old, has_token);
        self.ensure_held()?;
        Ok(self)
    }

    /// Whether this lock, on the old backend of a migration, can be kept for the min hold of `request`. One that
    /// re-enters the lock on the new backend has the min hold of the first.
    pub(crate) fn can_last_for(&self, request: &AcquireRequest) -> bool {
        let new = self.hold().counterpart();
        new.is_some_and(|new| !new.is_over()) || self.hold().suffices_for(request)
    }

    /// A second guard for the same owner, if the lock is held.
    pub(crate) fn reentered(hold: &Arc<HeldLease>) -> Option<Self> {
        hold.enter().then(|| Self::new(Arc::clone(hold)))
    }

    /// Ends a guard that no caller has received.
    fn end_undelivered(mut self) {
        if let Some(hold) = self.hold.take().filter(|hold| hold.leave_undelivered()) {
            release_dropped(hold);
        }
    }

    /// Assigns the lock, which is not used yet, to `request`; `None` if it is already lost, or does not suffice
    /// for the request, or the backend panics.
    pub(crate) fn reassigned(mut self, request: &AcquireRequest) -> Option<Self> {
        let hold = self.take();
        match hold.give_up() {
            Ok(given_up) => {
                let next = hold
                    .suffices_for(request)
                    .then(|| catch_panic(|| hold.succeed(request, hold.token(), given_up.until)));
                let next = next.flatten();
                if next.is_none() {
                    release_in_background(&hold);
                }
                next.map(Self::new)
            }
            Err(reason) => {
                if reason.may_still_be_held() {
                    release_in_background(&hold);
                }
                None
            }
        }
    }
}

/// Runs `work` until it is done or the lock is lost; the clock is read before and after each poll.
#[expect(clippy::future_not_send, reason = "it is if its work is")]
async fn run_while_held<W: Future>(
    work: W,
    lost: impl Future<Output = LostReason>,
    lost_reason: impl Fn() -> Option<LostReason>,
) -> Result<W::Output, LostReason> {
    tokio::pin!(work, lost);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
            return Poll::Ready(Err(reason));
        }
        // The signal comes from another thread, which may get to run later than this one.
        if let Some(reason) = lost_reason() {
            return Poll::Ready(Err(reason));
        }
        let Poll::Ready(output) = work.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        // Work that ended after the lock was lost was not done under the lock.
        Poll::Ready(lost_reason().map_or(Ok(output), Err))
    })
    .await
}

/// Sends a renewal for `ttl` and applies the reply; without a reply the deadline stays unchanged.
async fn ask_to_renew(hold: Arc<HeldLease>, ttl: Duration) -> Result<()> {
    let Some((request, renewer)) = hold.renewal_request(ttl) else {
        return Ok(());
    };
    if ttl > hold.timing.ttl() {
        hold.may_last(ttl);
    }
    hold.note_sent();
    let timeout = hold.attempt_timeout();
    let sent = hold.engine.now();
    let answer = renew(&*renewer, &[request], timeout).await.remove(0);
    let failed = answer.as_ref().err().cloned();
    hold.renewed_for(ttl, sent, answer);
    failed.map_or(Ok(()), Err)
}

/// Runs a downgrade on the engine, to its end: a caller that drops it must not leave it half done.
async fn downgrade(hold: Arc<HeldLease>, is_repeated: bool) -> Result<()> {
    let engine = hold.engine.clone();
    let downgraded = engine.run_to_end(async move { hold.downgrade(is_repeated).await });
    downgraded.await.unwrap_or_else(|| {
        let message = "the task of this downgrade has panicked";
        Err(Error::new(ErrorKind::Unavailable, message).with_unknown_outcome())
    })
}

/// Stops renewing the lock on the old backend of a migration, and returns the future that releases it, after
/// the min hold of the new one.
fn end_old(hold: &HeldLease) -> Option<Detachable> {
    let left = hold.min_hold_left();
    let mut released = None;
    for mut old in hold.take_old() {
        let engine = old.hold().engine.clone();
        let hold = old.take();
        // Before it leaves: the last to leave may be another request of the owner, which knows nothing of it.
        if !left.is_zero() {
            hold.keep_for(left);
        }
        if hold.leave() {
            released = Some(Detachable::new(engine, release_lease(hold)));
        }
    }
    released
}

/// Releases the lock of a dropped guard in the background.
fn release_dropped(hold: Arc<HeldLease>) {
    // Dropped, it goes on in the background.
    let _old = end_old(&hold);
    let engine = hold.engine.clone();
    let released = release_lease(hold);
    engine.detach(Box::pin(async move {
        // The outcome has no reader; `release_lease` has logged it.
        drop(released.await);
    }));
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take().filter(|hold| hold.leave()) {
            release_dropped(hold);
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("hold", &self.hold)
            .finish_non_exhaustive()
    }
}
