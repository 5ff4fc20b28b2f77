use std::time::Duration;

use super::Job;
use crate::clock::{self, nanos};
use crate::measure::{NO_TOKEN, Span, Window};
use crate::subject::{Failure, LOST, LOST_BEFORE, Subject};

/// What became of one request: a span if it was served, a failure if it or its release failed.
///
/// Neither if its time was over: a wait that the end of the window cuts short may end in silence,
/// which is no fault of the server.
pub(super) struct Turn {
    pub(super) span: Option<Span>,
    pub(super) failure: Option<Failure>,
}

/// Acquires, holds and releases. `request` says who asks for what since when.
///
/// The clock is read twice, and once more where the hold has to have a length: if it is asked for, or
/// if there is no token that tells two holders at a time.
pub(super) async fn turn<S: Subject>(
    subject: &S,
    key: &S::Key,
    job: &Job,
    request: Span,
    window: Window,
) -> Turn {
    let wait = Duration::from_nanos(window.end.saturating_sub(request.asked)).max(LEAST_WAIT);
    let held = match subject.acquire(key, job.ttl, Some(wait)).await {
        Ok(Some(held)) => held,
        refused => return Turn::without_lock(refused.err(), window),
    };
    let acquired = clock::now();
    let token = S::token(&held).unwrap_or(NO_TOKEN);
    let mut let_go = acquired;
    if !job.hold.is_zero() {
        tokio::time::sleep(job.hold).await;
        let_go = clock::now();
    } else if token == NO_TOKEN {
        let_go = clock::now();
    }
    let failure = subject.release(held).await.err();
    match failure.as_ref().map(Failure::kind) {
        // It knew that it holds no more; nobody knows since when.
        Some(LOST_BEFORE) => let_go = acquired,
        // A lease that is not renewed ends like this, and says nothing before.
        Some(LOST) => let_go = let_go.min(acquired.saturating_add(nanos(job.ttl))),
        _ => {}
    }
    let span = Span {
        token,
        acquired,
        let_go,
        released: clock::now(),
        ..request
    };
    Turn {
        span: Some(span),
        failure,
    }
}

impl Turn {
    fn without_lock(failure: Option<Failure>, window: Window) -> Self {
        let too_early = || Failure::new("contended", "a wait ended before its time");
        Self {
            span: None,
            failure: (!is_over(window)).then(|| failure.unwrap_or_else(too_early)),
        }
    }
}

/// Whether a wait that ends is one that the end of the window cuts short.
pub(super) fn is_over(window: Window) -> bool {
    clock::until(window.end) <= EARLY
}

/// A request that comes near the end is one all the same.
const LEAST_WAIT: Duration = Duration::from_millis(20);

/// Timers of others may be so early.
const EARLY: Duration = Duration::from_millis(5);
