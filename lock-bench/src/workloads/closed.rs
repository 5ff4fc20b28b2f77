use std::time::Duration;

use super::Job;
use super::turn::turn;
use crate::clock;
use crate::measure::{Log, Span, Window};
use crate::subject::{Failure, Subject};

/// Asks again as soon as it has given back, until the end of the window.
pub(super) async fn closed<S: Subject>(
    subject: &S,
    key: &S::Key,
    job: &Job,
    mut request: Span,
    window: Window,
    log: &mut Log,
) {
    request.asked = clock::now();
    while request.asked < window.end {
        let wait = Duration::from_nanos(window.end - request.asked);
        let turn = turn(subject, key, job, request, wait).await;
        if let Some(span) = turn.span {
            log.push(span);
            request.asked = span.released;
        } else {
            log.push_unserved(request.key, request.asked);
            if turn.failure.is_none() && !clock::until(window.end).saturating_sub(EARLY).is_zero() {
                log.push_failure(&Failure::new("contended", "a wait ended before its time"));
                tokio::time::sleep(PAUSE).await;
            }
            request.asked = clock::now();
        }
        if let Some(failure) = turn.failure {
            log.push_failure(&failure);
            tokio::time::sleep(PAUSE).await;
            request.asked = clock::now();
        }
        // What needs no I/O never yields by itself, and others would never begin.
        tokio::task::coop::consume_budget().await;
    }
}

/// Timers of others may be so early.
const EARLY: Duration = Duration::from_millis(5);

/// After a failure, so that one that comes at once does not fill the log.
const PAUSE: Duration = Duration::from_millis(5);
