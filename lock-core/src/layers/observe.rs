use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tracing::Instrument;

use crate::admin::LockAdmin;
use crate::capabilities::Capabilities;
use crate::error::{Error, Result};
use crate::guard::{LockGuard, LostReason};
use crate::key::LockKey;
use crate::lock::DistributedLock;
use crate::request::{AcquireRequest, Mode};
use crate::token::FencingToken;

/// Hears what happens to locks, for metrics and audits.
///
/// Called where it happens, also on the keeper's thread: it must return quickly and not block. A
/// panic is caught and changes nothing for the lock.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Takes note of an event.
    fn event(&self, event: &Event<'_>);
}

/// Something that happened to a lock.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Name of the backend, such as `"sqlite"`.
    pub backend: &'static str,
    /// The kind of work that the request named.
    pub class: Option<&'a str>,
    /// The key; of unbounded number, so no label for metrics.
    pub key: &'a LockKey,
    /// The mode that was requested.
    pub mode: Mode,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// What happened to a lock.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub enum EventKind<'a> {
    /// A request was made.
    Requested,
    /// A request was granted, after this time.
    Acquired {
        /// Time since the request was made.
        waited: Duration,
        /// The token of the new holder.
        token: Option<FencingToken>,
    },
    /// The future of a request was dropped, after this time.
    Cancelled {
        /// Time since the request was made.
        waited: Duration,
    },
    /// A request was refused or failed, after this time.
    Failed {
        /// Time since the request was made.
        waited: Duration,
        /// What was reported.
        error: &'a Error,
    },
    /// The lock was lost.
    Lost {
        /// Why.
        reason: LostReason,
        /// Time since it was acquired.
        held: Duration,
    },
    /// The holder gave the lock up.
    Released {
        /// Time since it was acquired, release included.
        held: Duration,
        /// `released`, `handed_over`, `lapsing`, `abandoned`, `already_lost` or `failed`.
        outcome: &'static str,
    },
    /// The lease was renewed.
    Renewed {
        /// Validity that the lease has now.
        slack: Duration,
    },
    /// A renewal failed; it is tried again while the lease is valid.
    RenewalFailed {
        /// What went wrong.
        error: &'a Error,
    },
}

/// Makes a tracing span for every acquisition, and tells an [`Observer`] what happens.
///
/// The span is `lock.acquire` at debug level, with `backend`, `key` and `mode`. Losses are logged at
/// warn, by the core and also without this layer; nothing is logged at info.
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

    fn prepare(&self, request: &AcquireRequest) -> AcquireRequest {
        match &self.observer {
            Some(observer) => request.clone().with_observer(Arc::clone(observer)),
            None => request.clone(),
        }
    }

    fn span(&self, request: &AcquireRequest) -> tracing::Span {
        let backend = self.inner.capabilities().backend;
        let (key, mode) = (request.key().as_str(), request.mode());
        tracing::debug_span!("lock.acquire", backend, key, ?mode)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Observe {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        let span = self.span(request);
        if self.observer.is_none() {
            return self.inner.acquire(request).instrument(span).await;
        }
        let request = self.prepare(request);
        let attempt = Attempt::new(self.inner.capabilities().backend, &request);
        let acquired = self.inner.acquire(&request).instrument(span).await;
        attempt.done(acquired.as_ref());
        acquired
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<Vec<LockGuard>> {
        let Some(first) = requests.first() else {
            return Ok(Vec::new());
        };
        let span = self.span(first);
        let requests: Vec<_> = requests
            .iter()
            .map(|request| self.prepare(request))
            .collect();
        let backend = self.inner.capabilities().backend;
        let attempts: Vec<_> = requests
            .iter()
            .map(|request| Attempt::new(backend, request))
            .collect();
        let acquired = self.inner.acquire_all(&requests).instrument(span).await;
        for (n, attempt) in attempts.into_iter().enumerate() {
            attempt.done(acquired.as_ref().map(|guards| &guards[n]));
        }
        acquired
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        self.inner.admin()
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.inner.shutdown(within).await
    }
}

/// One acquisition under way; dropped before it is done, it was cancelled.
struct Attempt {
    witness: Witness,
    began: Instant,
    done: bool,
}

impl Attempt {
    fn new(backend: &'static str, request: &AcquireRequest) -> Self {
        let witness = Witness::new(backend, request);
        witness.tell(EventKind::Requested);
        Self {
            witness,
            began: Instant::now(),
            done: false,
        }
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
        self.witness.tell(kind);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.done {
            let waited = self.began.elapsed();
            self.witness.tell(EventKind::Cancelled { waited });
        }
    }
}

/// Tells the observer of a request, if it has one, and the log.
pub(crate) struct Witness {
    backend: &'static str,
    key: LockKey,
    class: Option<Arc<str>>,
    mode: Mode,
    observer: Option<Arc<dyn Observer>>,
}

impl Witness {
    pub(crate) fn new(backend: &'static str, request: &AcquireRequest) -> Self {
        Self {
            backend,
            key: request.named().clone(),
            class: request.class_shared(),
            mode: request.mode(),
            observer: request.observer().cloned(),
        }
    }

    pub(crate) fn key(&self) -> &LockKey {
        &self.key
    }

    pub(crate) fn tell(&self, kind: EventKind<'_>) {
        let Self { backend, key, .. } = self;
        let backend = *backend;
        match kind {
            EventKind::Lost { reason, held } => {
                tracing::warn!(backend, %key, reason = reason.as_str(), ?held, "lock lost");
            }
            EventKind::RenewalFailed { error } => {
                tracing::warn!(backend, %key, %error, "renewal failed");
            }
            EventKind::Released { held, outcome } => {
                tracing::debug!(backend, %key, outcome, ?held, "lock released");
            }
            EventKind::Renewed { slack } => tracing::trace!(backend, %key, ?slack, "lock renewed"),
            _ => {}
        }
        if let Some(observer) = &self.observer {
            let event = Event {
                backend,
                class: self.class.as_deref(),
                key,
                mode: self.mode,
                kind,
            };
            // An observer that panics must not break the lock, and this may run in a destructor.
            drop(catch_unwind(AssertUnwindSafe(|| observer.event(&event))));
        }
    }
}
