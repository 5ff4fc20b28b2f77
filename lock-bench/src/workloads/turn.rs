use std::time::Duration;

use super::Job;
use crate::clock;
use crate::measure::{NO_TOKEN, Span};
use crate::subject::{Failure, LOST, Subject};

/// What became of one request: a span if it was served, a failure if it or its release failed.
pub(super) struct Turn {
    pub(super) span: Option<Span>,
    pub(super) failure: Option<Failure>,
}

/// Acquires, holds and releases. `request` says who asks for what since when.
///
/// The clock is read twice, and twice more for a hold.
pub(super) async fn turn<S: Subject>(
    subject: &S,
    key: &S::Key,
    job: &Job,
    request: Span,
    wait: Duration,
) -> Turn {
    let held = match subject.acquire(key, job.ttl, Some(wait)).await {
        Ok(Some(held)) => held,
        Ok(None) => {
            return Turn {
                span: None,
                failure: None,
            };
        }
        Err(failure) => {
            return Turn {
                span: None,
                failure: Some(failure),
            };
        }
    };
    let acquired = clock::now();
    let token = S::token(&held).unwrap_or(NO_TOKEN);
    let mut let_go = acquired;
    if !job.hold.is_zero() {
        tokio::time::sleep(job.hold).await;
        let_go = clock::now();
    }
    let failure = subject.release(held).await.err();
    if failure
        .as_ref()
        .is_some_and(|failure| failure.kind() == LOST)
    {
        // It was told that it holds no more; nobody knows since when.
        let_go = acquired;
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
