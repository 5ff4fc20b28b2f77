use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::time::Duration;

use super::ContenderJob;
use crate::clock::{self, nanos};
use crate::measure::{HoldSpan, SpanLog, Window};
use crate::subject::{Failure, LOST, LOST_BEFORE, Subject};

/// Requests again after each release, until the end of the window.
pub(super) async fn closed<S: Subject>(
    subject: &S,
    key: &S::Key,
    job: &ContenderJob,
    mut request: HoldSpan,
    window: Window,
    log: &mut SpanLog,
) {
    request.requested = clock::now();
    // When others could last run here.
    let mut yielded = request.requested;
    while request.requested < window.end {
        let mut waited = false;
        // In place: its future is large.
        let mut turn = pin!(turn(subject, key, job, request, window));
        let turn = poll_fn(|cx| {
            let progress = turn.as_mut().poll(cx);
            waited |= progress.is_pending();
            progress
        });
        let turn = turn.await;
        turn.write(request, log);
        if turn.failure.is_some() {
            tokio::time::sleep(FAILURE_BACKOFF).await;
        }
        let served = turn.span.filter(|_| turn.failure.is_none());
        request.requested = served.map_or_else(clock::now, |span| span.released);
        if waited {
            yielded = request.requested;
        }
        // Contenders without I/O never yield by themselves, and others would never begin. Yields are rare,
        // because each wakes another thread of the runtime, and because a contender that yields requests no
        // lock meanwhile: if all did after each turn, a lock would go back to its server for lack of a
        // waiter.
        if request.requested > yielded + YIELDS_AFTER {
            yielded = request.requested;
            tokio::task::yield_now().await;
        }
    }
}

/// After a failure, so that one that comes at once does not fill the log.
pub(super) const FAILURE_BACKOFF: Duration = Duration::from_millis(5);

/// In nanoseconds.
const YIELDS_AFTER: u64 = 1_000_000;

/// What became of one request: a span if it was served, a failure if it or its release failed.
///
/// Neither if its time was over: a wait that the end of the window cuts short may end in silence,
/// which is no fault of the server.
pub(super) struct RequestResult {
    pub(super) span: Option<HoldSpan>,
    pub(super) failure: Option<Failure>,
}

/// Acquires, holds and releases. `request` has the contender, the key and the time of the request.
///
/// The clock is read before the release too if nothing is done in between: a hold has to have a length, or
/// holders at a time whose tokens grow in the order of their acquisitions are never seen.
pub(super) async fn turn<S: Subject>(
    subject: &S,
    key: &S::Key,
    job: &ContenderJob,
    request: HoldSpan,
    window: Window,
) -> RequestResult {
    let wait = Duration::from_nanos(window.end.saturating_sub(request.requested)).max(MIN_WAIT);
    let held = match subject.acquire(key, wait).await {
        Ok(Some(held)) => held,
        refused => return RequestResult::without_lock(refused.err(), window),
    };
    let acquired = clock::now();
    let token = S::token(&held);
    if !job.hold.is_zero() {
        tokio::time::sleep(job.hold).await;
    }
    let mut releasing = clock::now();
    let failure = subject.release(held).await.err();
    match failure.as_ref().map(Failure::kind) {
        // The holder knew that it had lost the lock, but not since when.
        Some(LOST_BEFORE) => releasing = acquired,
        // A lease that is not renewed ends like this, without an earlier signal.
        Some(LOST) => releasing = releasing.min(acquired.saturating_add(nanos(job.ttl))),
        _ => {}
    }
    let span = HoldSpan {
        token,
        acquired,
        releasing,
        released: clock::now(),
        ..request
    };
    RequestResult {
        span: Some(span),
        failure,
    }
}

impl RequestResult {
    fn without_lock(failure: Option<Failure>, window: Window) -> Self {
        let too_early = || Failure::new("contended", "a wait ended before its time");
        Self {
            span: None,
            failure: (!is_over(window)).then(|| failure.unwrap_or_else(too_early)),
        }
    }

    pub(super) fn write(&self, request: HoldSpan, log: &mut SpanLog) {
        match (self.span, &self.failure) {
            (Some(span), _) => log.push(span),
            (None, None) => log.push_unserved(request.key, request.requested),
            (None, Some(_)) => {}
        }
        if let Some(failure) = &self.failure {
            log.push_failure(failure);
        }
    }
}

/// Whether a wait that ends is one that the end of the window cuts short.
pub(super) fn is_over(window: Window) -> bool {
    clock::until(window.end) <= EARLY
}

/// A request that comes near the end is one all the same.
const MIN_WAIT: Duration = Duration::from_millis(20);

/// Timers of others may be so early.
const EARLY: Duration = Duration::from_millis(5);

/// A lock that is held, of whatever subject.
pub(crate) struct SubjectGuard {
    pub(crate) since: u64,
    pub(crate) token: Option<u64>,
    pub(crate) release: Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>,
}

/// Acquires one lock; `None` if another holder has it at the end of the wait.
pub(crate) async fn acquire<S: Subject>(
    subject: S,
    name: String,
    ttl: Duration,
    wait: Duration,
) -> Result<Option<SubjectGuard>, Failure> {
    let key = subject.key(&name, ttl)?;
    let held = subject.acquire(&key, wait).await?;
    let since = clock::now();
    Ok(held.map(|held| SubjectGuard {
        since,
        token: S::token(&held),
        release: Box::pin(async move { subject.release(held).await }),
    }))
}
