//! Release of a lock: to the next holder of this process, or to the server.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::held_lease::HeldLease;
use crate::engine::{Engine, Moment, Unfinished, catch_panic, catch_panic_async};
use crate::error::{Error, ErrorKind, Result};
use crate::key::LockKey;
use crate::lease::{Lease, LeaseState, Liveness, Released, TtlRule};
use crate::request::AcquireRequest;
use crate::token::FencingToken;

/// The local queue of a key, to which a lock returns before it is released at the server.
pub(crate) trait ReleaseHook: Send + Sync {
    /// Hands the lease over to the next waiter of this process; without a waiter, returns it at once.
    fn hand_over(&self, lease: ReleasedLease) -> Result<HandOver, ReleasedLease>;

    /// The holder is gone: lost, abandoned, or about to be released on the server.
    fn on_ended(&self, hold: &HeldLease);
}

/// A hand-over in progress; returns the lease if it fails.
pub(crate) type HandOver = Pin<Box<dyn Future<Output = Option<ReleasedLease>> + Send>>;

/// A lease that its holder gave up in time, still valid until `deadline`.
pub(crate) struct ReleasedLease {
    hold: Arc<HeldLease>,
    deadline: Moment,
}

impl ReleasedLease {
    pub(crate) fn hold(&self) -> &HeldLease {
        &self.hold
    }

    /// Draws the token of the next holder; `None` if the lease cannot be handed over.
    pub(crate) async fn hand_over(&self) -> Option<Option<FencingToken>> {
        let limit = release_timeout(self.hold.timing.ttl());
        let token = self.hold.lease.hand_over();
        match self.hold.engine.within(limit, token).await {
            Some(Ok(Some(token))) => self.lasts().then_some(Some(token)),
            // Waiters of this process must not hang with a server that does not answer.
            Some(Ok(None)) | None => None,
            Some(Err(error)) => {
                // A subscriber that panics must not cost the release.
                let _logged = catch_panic(|| {
                    tracing::debug!(key = %self.hold.key, %error, "hand-over refused");
                });
                None
            }
        }
    }

    fn lasts(&self) -> bool {
        let left = self.deadline.since(self.hold.engine.now());
        left >= self.hold.timing.min_handed_over()
    }

    /// Makes it the lock of `request`; `None` if the backend panics.
    pub(crate) fn for_next(
        &self,
        request: &AcquireRequest,
        token: Option<FencingToken>,
    ) -> Option<Arc<HeldLease>> {
        catch_panic(|| self.hold.succeed(request, token, self.deadline))
    }
}

/// Returns the future that releases a lock. Renewal has stopped when this function returns.
pub(super) fn release_lease(hold: Arc<HeldLease>) -> ReleaseFuture {
    let given_up = hold.give_up();
    Box::pin(async move {
        let at = given_up.as_ref().ok().map(|given_up| given_up.at);
        let (released, outcome) = match given_up {
            Ok(given_up) => {
                let (hold, deadline) = (Arc::clone(&hold), given_up.until);
                hand_over_or_release(ReleasedLease { hold, deadline }).await
            }
            Err(reason) => {
                hold.notify_queue();
                if reason.may_still_be_held() {
                    release_in_background(&hold);
                }
                (Ok(Released::AlreadyLost), "already_lost")
            }
        };
        hold.emit_released(at, outcome);
        released
    })
}

pub(super) type ReleaseFuture = Pin<Box<dyn Future<Output = Result<Released>> + Send>>;

async fn hand_over_or_release(mut lease: ReleasedLease) -> (Result<Released>, &'static str) {
    let min_hold_left = lease.hold.min_hold_left();
    if let Some(hook) = lease.hold.hook().cloned() {
        // A longer lease than the next holder requested would outlast its crash.
        let may_pass = lease.hold.is_exclusive() && !lease.hold.is_extended();
        if min_hold_left.is_zero() && may_pass {
            let engine = lease.hold.engine.clone();
            match hook.hand_over(lease) {
                // A hand-over without a round trip needs no task.
                Ok(mut hand_over) => match engine.poll_once(hand_over.as_mut()) {
                    Poll::Ready(None) => return (Ok(Released::Clean), "handed_over"),
                    Poll::Ready(Some(returned)) => lease = returned,
                    Poll::Pending => return finish_hand_over(&engine, hand_over).await,
                },
                Err(returned) => lease = returned,
            }
        }
        // Before the release is sent: it may grant the lock to a contender of this process.
        lease.hold.notify_queue();
    }
    if min_hold_left.is_zero() {
        release_on_server(&lease.hold).await
    } else {
        expire_at_min_hold(&lease.hold).await
    }
}

/// Runs a hand-over to its end on the engine, since the waiters of the key depend on it: the caller may
/// keep the future of its release without polling it.
async fn finish_hand_over(
    engine: &Engine,
    hand_over: HandOver,
) -> (Result<Released>, &'static str) {
    let ended = engine.run_to_end(async move {
        match hand_over.await {
            Some(returned) => {
                returned.hold.notify_queue();
                release_on_server(&returned.hold).await
            }
            None => (Ok(Released::Clean), "handed_over"),
        }
    });
    ended.await.unwrap_or_else(|| (Err(silent()), "failed"))
}

/// Releases a lock on two backends as one task of the engine, since waiters of this process depend on both: the
/// caller may keep the future of its release without polling it.
pub(super) async fn release_both(
    engine: &Engine,
    new: ReleaseFuture,
    old: Detachable,
) -> Result<Released> {
    // A shutdown of the old backend waits for it too.
    let (old_ends, old_ended) = oneshot::channel::<Infallible>();
    old.engine.spawn(async move { drop(old_ended.await) });
    let released = engine.run_to_end(async move {
        // The old lock is released last: others acquire it first, and then find the new one free.
        let released = match (new.await, old.await) {
            (Ok(Released::Clean), old) => old,
            (released, _) => released,
        };
        drop(old_ends);
        released
    });
    released.await.unwrap_or_else(|| Err(silent()))
}

async fn release_on_server(hold: &Arc<HeldLease>) -> (Result<Released>, &'static str) {
    let limit = release_timeout(hold.timing.ttl());
    let released = match hold.engine.finished(limit, hold.release()).await {
        Ok(released) => released,
        Err(Unfinished::Moved) => return release_anew(hold).await,
        Err(Unfinished::Late) => Err(silent()),
    };
    match released {
        Ok(Released::Clean) => (Ok(Released::Clean), "released"),
        Ok(Released::AlreadyLost) => (Ok(Released::AlreadyLost), "already_lost"),
        Err(error) => {
            if error.is_outcome_unknown() || error.is_retryable() {
                release_in_background(hold);
            }
            (Err(error.with_backend(hold.engine.backend())), "failed")
        }
    }
}

/// Releases a lock on the engine after the caller of its release is gone, or has moved it to another runtime. The
/// server may have executed the first request, so that the next one finds nothing: any definite reply says that the
/// lock is released, but not that it was held until then.
async fn release_anew(hold: &Arc<HeldLease>) -> (Result<Released>, &'static str) {
    let (done, answer) = oneshot::channel();
    let release = confirm_release(hold);
    hold.engine.spawn(async move {
        // The other end emits the outcome.
        let _is_gone = done.send(release.await);
    });
    match answer.await {
        Ok(Some(Released::Clean)) => (Ok(Released::Clean), "released"),
        Ok(Some(Released::AlreadyLost)) => (Err(repeated()), "released"),
        Ok(None) | Err(_) => (Err(silent()), "failed"),
    }
}

fn silent() -> Error {
    let message = "the server does not answer the release";
    Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
}

fn repeated() -> Error {
    let message =
        "the release was repeated in another runtime, and the server had nothing to release";
    Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
}

pub(super) fn release_in_background(hold: &HeldLease) {
    let release = confirm_release(hold);
    hold.engine.spawn(async move {
        release.await;
    });
}

/// Starts a background release when the returned sender is dropped. A shutdown waits for it from this
/// call on, unless another thread begins the shutdown between the end of the lease and this call.
pub(super) fn release_once_dropped(hold: &HeldLease) -> oneshot::Sender<Infallible> {
    let (begin, begun) = oneshot::channel();
    let release = confirm_release(hold);
    hold.engine.spawn(async move {
        drop(begun.await);
        release.await;
    });
    begin
}

fn confirm_release(hold: &HeldLease) -> impl Future<Output = Option<Released>> + Send + use<> {
    let (lease, key) = (Arc::clone(&hold.lease), hold.key.clone());
    release_until_confirmed(hold.engine.clone(), lease, key, hold.longest_left())
}

/// Retries the release until the server gives a definite reply; `None` without one. A lease expires soon after
/// one ttl, which ends the retries; a lock without a lease is retried without limit. The ttl is measured by the
/// clock of timers: nothing was sent while the machine was suspended.
pub(super) async fn release_until_confirmed(
    engine: Engine,
    lease: Arc<dyn Lease>,
    key: LockKey,
    ttl: Duration,
) -> Option<Released> {
    let attempt = release_timeout(ttl);
    let (until, longest_pause) = match lease.liveness() {
        // Several attempts fit into the shortest lease. The last one begins after its end, to remove a
        // queue entry that has no lease.
        Liveness::Renewed { .. } => {
            let until = Instant::now().checked_add(ttl.saturating_add(attempt));
            (until, Duration::from_secs(1))
        }
        Liveness::Reported => (None, Duration::from_secs(30)),
    };
    let mut pause = Duration::from_millis(20);
    loop {
        let answer = tokio::time::timeout(attempt, catch_panic_async(lease.release())).await;
        let error = match answer.ok().flatten() {
            Some(Ok(released)) => return Some(released),
            Some(Err(error)) if !error.is_outcome_unknown() && !error.is_retryable() => error,
            _ if until.is_none_or(|until| Instant::now() < until) => {
                tokio::time::sleep(engine.jitter(pause / 2, pause)).await;
                pause = (pause * 2).min(longest_pause);
                continue;
            }
            Some(Err(error)) => error,
            None => Error::new(ErrorKind::Unavailable, "the server does not answer"),
        };
        let backend = engine.backend();
        tracing::warn!(backend, %key, %error, "background release failed");
        return None;
    }
}

/// Timeout of one attempt to release a lease, or to hand it over.
pub(super) fn release_timeout(ttl: Duration) -> Duration {
    MAX_RELEASE_TIMEOUT.min(ttl / 3)
}

/// Longest time that one release may take; the next one uses a connection that may be healthier.
const MAX_RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Keeps the lock held until its min hold is over, without renewals after that.
async fn expire_at_min_hold(hold: &Arc<HeldLease>) -> (Result<Released>, &'static str) {
    if let Liveness::Reported = &hold.liveness {
        let hold = Arc::clone(hold);
        hold.engine.clone().spawn(async move {
            tokio::time::sleep(hold.min_hold_left()).await;
            confirm_release(&hold).await;
        });
        return (Ok(Released::Clean), "expiring");
    }
    // A renewal in flight is for another ttl, and may arrive after this one. Only a final renewal that is sent after
    // `settled` counts, however late its reply is.
    let settled = hold.settled();
    let sent = hold.engine.now();
    let answer = final_renewal(hold).await;
    if answer.is_err() || sent < settled {
        hold.engine
            .spawn(retry_final_renewal(Arc::clone(hold), settled));
    }
    match answer {
        Ok(LeaseState::Held) => (Ok(Released::Clean), "expiring"),
        Ok(LeaseState::Lost(_)) => (Ok(Released::AlreadyLost), "already_lost"),
        Err(error) => (Err(error.with_backend(hold.engine.backend())), "failed"),
    }
}

/// Sets the lease to the rest of the min hold.
async fn final_renewal(hold: &HeldLease) -> Result<LeaseState> {
    let (mut request, renewer) = hold
        .renewal_request(hold.min_hold_left().max(MIN_LEASE))
        .expect("BUG: a renewed lease can be renewed");
    request.rule = TtlRule::Exactly;
    let (limit, requests) = (hold.timing.attempt_timeout(), [request]);
    let renewal = hold.engine.within(limit, renewer.renew(&requests));
    let answer = renewal.await.and_then(|mut answers| answers.pop());
    answer.unwrap_or_else(|| Err(silent()))
}

/// Shortest lease to ask for. The min hold may end after the decision to keep it, and a server may refuse a
/// lease of no time, or end the leases of others by it.
const MIN_LEASE: Duration = Duration::from_millis(1);

/// Retries the final renewal until the server has answered one sent after `settled`. Without such a reply
/// by the end of the min hold, the lease may still be an extended one, and is released.
async fn retry_final_renewal(hold: Arc<HeldLease>, settled: Moment) {
    loop {
        let now = hold.engine.now();
        let next = hold.timing.retry_at(now).max(settled);
        tokio::time::sleep(next.since(now)).await;
        if hold.min_hold_left().is_zero() {
            confirm_release(&hold).await;
            return;
        }
        let sent = hold.engine.now();
        match final_renewal(&hold).await {
            Ok(LeaseState::Held) if sent < settled => {}
            Ok(_) => return,
            Err(_) => {}
        }
    }
}

/// A future that goes on in the background when it is dropped.
pub(super) struct Detachable {
    engine: Engine,
    work: Option<ReleaseFuture>,
}

impl Detachable {
    pub(super) fn new(engine: Engine, work: ReleaseFuture) -> Self {
        Self {
            engine,
            work: Some(work),
        }
    }
}

impl Future for Detachable {
    type Output = Result<Released>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.work.as_mut().expect("BUG: polled after it was ready");
        let answer = std::task::ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(answer)
    }
}

impl Drop for Detachable {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.engine
                .detach(Box::pin(async move { drop(work.await) }));
        }
    }
}
