//! Spans of acquisitions, and an observer for their events.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tracing::field::Empty;
use tracing::{Instrument, Level, Span};

use crate::admin::LockAdmin;
use crate::capabilities::Capabilities;
use crate::error::{Error, Result};
use crate::event::{EventEmitter, EventKind, Observer, outcome};
use crate::guard::LockGuard;
use crate::lock::DistributedLock;
use crate::mode::Wait;
use crate::request::AcquireRequest;

/// Makes a tracing span for every acquisition, and reports events to an [`Observer`].
///
/// The span is `lock.acquire` at debug level, with `backend`, `class`, `key`, `mode` and `wait`, and
/// at its end `outcome` (as [`Event::outcome`](crate::layers::Event::outcome) has it), `waited`, and the `fencing_token` or the
/// `error`. The token is recorded on the span around it too, if that has a field of this name. Losses
/// are logged at warn, by the core and also without this layer; nothing is logged at info.
///
/// The example of [`Observer`] uses it.
#[derive(Debug)]
pub struct Observe {
    inner: Arc<dyn DistributedLock>,
    observer: Option<Arc<dyn Observer>>,
}

impl Observe {
    /// Wraps `inner` with spans alone.
    #[must_use]
    pub fn new(inner: Arc<dyn DistributedLock>) -> Self {
        Self {
            inner,
            observer: None,
        }
    }

    /// Adds an observer.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    fn span(&self, request: &AcquireRequest) -> Span {
        let (key, mode, wait) = (request.key().as_str(), request.mode(), request.wait());
        tracing::debug_span!(
            "lock.acquire",
            backend = self.inner.capabilities().backend,
            class = request.class(),
            key,
            ?mode,
            ?wait,
            outcome = Empty,
            waited = Empty,
            fencing_token = Empty,
            error = Empty,
        )
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Observe {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    /// Written out: without an observer this layer needs no future.
    fn acquire<'l, 'r, 'f>(
        &'l self,
        request: &'r AcquireRequest,
    ) -> Pin<Box<dyn Future<Output = Result<LockGuard>> + Send + 'f>>
    where
        'l: 'f,
        'r: 'f,
        Self: 'f,
    {
        if self.observer.is_none() && !tracing::level_enabled!(Level::DEBUG) {
            return self.inner.acquire(request);
        }
        Box::pin(async move {
            let span = self.span(request);
            if self.observer.is_none() && span.is_disabled() {
                return self.inner.acquire(request).await;
            }
            let backend = self.inner.capabilities().backend;
            let mut request = request.clone();
            if let Some(observer) = &self.observer {
                request = request.with_observer(Arc::clone(observer), backend);
            }
            let attempt = ObservedAcquire::new(backend, &request, span.clone());
            let acquired = self.inner.acquire(&request).instrument(span).await;
            attempt.done(acquired.as_ref());
            acquired
        })
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        self.inner.admin()
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.inner.shutdown(within).await
    }
}

/// One acquisition under way; dropped before it is done, it was cancelled.
struct ObservedAcquire {
    events: EventEmitter,
    wait: Wait,
    span: Span,
    around: Span,
    began: Instant,
    done: bool,
}

impl ObservedAcquire {
    fn new(backend: &'static str, request: &AcquireRequest, span: Span) -> Self {
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

    fn done(mut self, acquired: Result<&LockGuard, &Error>) {
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

impl Drop for ObservedAcquire {
    fn drop(&mut self) {
        if !self.done {
            let waited = self.began.elapsed();
            self.end(EventKind::Cancelled { waited }, waited);
        }
    }
}
