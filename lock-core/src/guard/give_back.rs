//! How a lock goes back: to the next holder of this process, or to the server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;

use super::hold::Hold;
use super::pending::{attempt_limit, insist};
use crate::engine::{Engine, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::lease::{LeaseState, Released, Upkeep, renew};
use crate::request::AcquireRequest;
use crate::token::FencingToken;

/// Where a lock returns to before it goes back to the server: the local queue of its key.
#[async_trait]
pub(crate) trait Home: Send + Sync {
    /// Passes the lease to the next waiter of this process, or returns it.
    async fn pass_on(&self, lease: Returned) -> Option<Returned>;

    /// The holder is gone: lost, abandoned, or about to be released on the server.
    fn vacated(&self, hold: &Hold);
}

/// A lease that its holder gave up in time, still valid until `deadline`.
pub(crate) struct Returned {
    hold: Arc<Hold>,
    deadline: Moment,
}

impl Returned {
    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Draws the token of the next holder; `None` if the lease cannot be handed over.
    pub(crate) async fn hand_over(&self) -> Option<Option<FencingToken>> {
        let limit = attempt_limit(self.hold.terms().ttl());
        let token = self.hold.lease().hand_over();
        match self.hold.engine().within(limit, token).await {
            Some(Ok(Some(token))) => Some(Some(token)),
            // Waiters of this process must not hang with a server that does not answer.
            Some(Ok(None)) | None => None,
            Some(Err(error)) => {
                tracing::debug!(key = %self.hold.key(), %error, "hand-over refused");
                None
            }
        }
    }

    /// Makes it the lock of `request`.
    pub(crate) fn for_next(
        &self,
        request: &AcquireRequest,
        token: Option<FencingToken>,
    ) -> Arc<Hold> {
        self.hold.succeed(request, token, self.deadline)
    }
}

/// What gives a lock back; renewal has stopped by the time this returns.
pub(super) fn give_back(hold: Arc<Hold>) -> GiveBack {
    let given_up = hold.give_up();
    Box::pin(async move {
        let (released, outcome) = match given_up {
            Ok(deadline) => to_the_next(hold.as_returned(deadline)).await,
            Err(reason) => {
                if let Some(home) = hold.home() {
                    home.vacated(&hold);
                }
                if reason.may_still_be_held() {
                    release_in_background(&hold);
                }
                (Ok(Released::AlreadyLost), "already_lost")
            }
        };
        hold.tell_released(outcome);
        released
    })
}

pub(super) type GiveBack = Pin<Box<dyn Future<Output = Result<Released>> + Send>>;

impl Hold {
    fn as_returned(self: &Arc<Self>, deadline: Moment) -> Returned {
        Returned {
            hold: Arc::clone(self),
            deadline,
        }
    }
}

async fn to_the_next(mut lease: Returned) -> (Result<Released>, &'static str) {
    let min_hold_left = lease.hold.min_hold_left();
    if let Some(home) = lease.hold.home().cloned() {
        if min_hold_left.is_zero() && lease.hold.is_exclusive() {
            match home.pass_on(lease).await {
                Some(returned) => lease = returned,
                None => return (Ok(Released::Clean), "handed_over"),
            }
        }
        // Before the release is sent: it may grant the lock to a contender of this process.
        home.vacated(&lease.hold);
    }
    if min_hold_left.is_zero() {
        to_the_server(&lease.hold).await
    } else {
        (lapse(&lease.hold, min_hold_left).await, "lapsing")
    }
}

async fn to_the_server(hold: &Arc<Hold>) -> (Result<Released>, &'static str) {
    let limit = attempt_limit(hold.terms().ttl());
    let released = hold.engine().within(limit, hold.lease().release()).await;
    match released.unwrap_or_else(|| Err(silent())) {
        Ok(Released::Clean) => (Ok(Released::Clean), "released"),
        Ok(Released::AlreadyLost) => (Ok(Released::AlreadyLost), "already_lost"),
        Err(error) => {
            if error.is_outcome_unknown() || error.is_retryable() {
                release_in_background(hold);
            }
            (Err(error.with_backend(hold.engine().backend())), "failed")
        }
    }
}

fn silent() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the server does not answer the release",
    )
    .with_unknown_outcome()
}

pub(super) fn release_in_background(hold: &Hold) {
    let engine = hold.engine();
    let (lease, key) = (Arc::clone(hold.lease()), hold.key().clone());
    engine.spawn(insist(engine.clone(), lease, key, hold.terms().ttl()));
}

/// Keeps the lock taken for `left`, without anybody renewing it after that.
async fn lapse(hold: &Arc<Hold>, left: Duration) -> Result<Released> {
    let lease = Arc::clone(hold.lease());
    let Upkeep::Renewed { .. } = hold.upkeep() else {
        let (engine, key, ttl) = (
            hold.engine().clone(),
            hold.key().clone(),
            hold.terms().ttl(),
        );
        hold.engine().spawn(async move {
            tokio::time::sleep(left).await;
            insist(engine, lease, key, ttl).await;
        });
        return Ok(Released::Clean);
    };
    let (request, renewer) = hold
        .renewal_request(left)
        .expect("BUG: a renewed lease can be renewed");
    match renew(&*renewer, &[request], hold.terms().attempt_timeout())
        .await
        .remove(0)
    {
        Ok(LeaseState::Held) => Ok(Released::Clean),
        Ok(LeaseState::Lost(_)) => Ok(Released::AlreadyLost),
        // The lease lasts for what is left of its ttl, which may be less than asked for.
        Err(error) => Err::<_, Error>(error.with_backend(hold.engine().backend())),
    }
}

/// A future that goes on in the background when it is dropped.
pub(super) struct Detachable {
    engine: Engine,
    work: Option<GiveBack>,
}

impl Detachable {
    pub(super) fn new(engine: Engine, work: GiveBack) -> Self {
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
