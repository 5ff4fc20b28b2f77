use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Event, EventKind, Observer};
use crate::key::LockKey;
use crate::mode::{Mode, Wait};

/// Tells the observer of a request, if it has one, and the log.
pub(crate) struct EventEmitter {
    pub(crate) backend: &'static str,
    pub(crate) key: LockKey,
    pub(crate) class: Option<Arc<str>>,
    pub(crate) mode: Mode,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl EventEmitter {
    pub(crate) fn key(&self) -> &LockKey {
        &self.key
    }

    pub(crate) fn emit(&self, kind: EventKind<'_>) {
        self.tell_of(None, kind);
    }

    /// A subscriber of the log or an observer that panics must not break the lock, and this may run in
    /// a destructor.
    pub(crate) fn tell_of(&self, wait: Option<Wait>, kind: EventKind<'_>) {
        drop(catch_unwind(AssertUnwindSafe(|| self.log(&kind))));
        if let Some(observer) = &self.observer {
            let event = Event {
                backend: self.backend,
                class: self.class.as_deref(),
                key: &self.key,
                mode: self.mode,
                wait,
                kind,
            };
            drop(catch_unwind(AssertUnwindSafe(|| observer.event(&event))));
        }
    }

    fn log(&self, kind: &EventKind<'_>) {
        let Self { backend, key, .. } = self;
        match kind {
            EventKind::Lost { reason, held } => {
                tracing::warn!(backend, %key, reason = reason.as_str(), ?held, "lock lost");
            }
            EventKind::RenewalFailed { error } => {
                tracing::warn!(backend, %key, %error, "renewal failed");
            }
            EventKind::Released { held, outcome, .. } => {
                tracing::debug!(backend, %key, outcome, ?held, "lock released");
            }
            EventKind::Renewed { slack, left } => {
                tracing::trace!(backend, %key, ?slack, ?left, "lock renewed");
            }
            _ => {}
        }
    }
}
