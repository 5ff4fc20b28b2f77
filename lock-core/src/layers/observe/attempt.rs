use std::time::{Duration, Instant};

use tracing::Span;

use crate::error::{Error, Result};
use crate::event::{EventEmitter, EventKind, outcome};
use crate::guard::LockGuard;
use crate::mode::Wait;
use crate::request::AcquireRequest;

/// One acquisition under way; dropped before it is done, it was cancelled.
pub(super) struct Attempt {
    events: EventEmitter,
    wait: Wait,
    span: Span,
    around: Span,
    began: Instant,
    done: bool,
}

impl Attempt {
    pub(super) fn new(backend: &'static str, request: &AcquireRequest, span: Span) -> Self {
        let attempt = Self {
            events: request.emitter(backend),
            wait: request.wait(),
            around: match span.is_disabled() {
                true => Span::none(),
                false => Span::current(),
            },
            span,
            began: Instant::now(),
            done: false,
        };
        attempt.emit(EventKind::Requested);
        attempt
    }

    pub(super) fn done(mut self, acquired: Result<&LockGuard, &Error>) {
        self.done = true;
        let waited = self.began.elapsed();
        let kind = match acquired {
            Ok(guard) => EventKind::Acquired {
                waited,
                token: guard.fencing_token(),
            },
            Err(error) => EventKind::Failed { waited, error },
        };
        self.end(kind, waited);
    }

    fn end(&self, kind: EventKind<'_>, waited: Duration) {
        if !self.span.is_disabled() {
            self.span.record("outcome", outcome(self.wait, &kind));
            self.span.record("waited", tracing::field::debug(waited));
            self.record_answer(kind);
        }
        self.emit(kind);
    }

    fn record_answer(&self, kind: EventKind<'_>) {
        match kind {
            EventKind::Acquired {
                token: Some(token), ..
            } => {
                self.span.record("fencing_token", token.value());
                self.around.record("fencing_token", token.value());
            }
            EventKind::Failed { error, .. } => {
                self.span.record("error", tracing::field::display(error));
            }
            _ => {}
        }
    }

    fn emit(&self, kind: EventKind<'_>) {
        self.events.tell_of(Some(self.wait), kind);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.done {
            let waited = self.began.elapsed();
            self.end(EventKind::Cancelled { waited }, waited);
        }
    }
}
