use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use super::Job;
use super::turn::turn;
use crate::clock;
use crate::measure::{Log, Span, Window};
use crate::subject::Subject;

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
    // When others could last run here.
    let mut yielded = request.asked;
    while request.asked < window.end {
        let mut waited = false;
        // In place: its future is large.
        let mut turn = pin!(turn(subject, key, job, request, window));
        let turn = poll_fn(|cx| {
            let progress = turn.as_mut().poll(cx);
            waited |= progress.is_pending();
            progress
        });
        let turn = turn.await;
        match (turn.span, turn.failure) {
            (Some(span), None) => {
                log.push(span);
                request.asked = span.released;
            }
            (None, None) => {
                log.push_unserved(request.key, request.asked);
                request.asked = clock::now();
            }
            (span, Some(failure)) => {
                if let Some(span) = span {
                    log.push(span);
                }
                log.push_failure(&failure);
                tokio::time::sleep(PAUSE).await;
                request.asked = clock::now();
            }
        }
        if waited {
            yielded = request.asked;
        }
        // What needs no I/O never yields by itself, and others would never begin. Seldom, because
        // it wakes another thread of the runtime, and because who yields wants no lock meanwhile: if
        // all did after each turn, a lock would go back to its server for want of a next one.
        if request.asked > yielded + YIELDS_AFTER {
            yielded = request.asked;
            tokio::task::yield_now().await;
        }
    }
}

/// After a failure, so that one that comes at once does not fill the log.
const PAUSE: Duration = Duration::from_millis(5);

/// In nanoseconds.
const YIELDS_AFTER: u64 = 1_000_000;
