//! Two locks that act as one: held while both are held, and released together.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;

use super::LockGuard;
use super::held_lease::{HeldLease, Parts};
use super::release::{ReleaseHook, ReleasedLease};
use crate::error::{Error, ErrorKind, Result};
use crate::lease::{Grant, Lease, LeaseControl, Liveness, Released};
use crate::mode::Renewal;
use crate::request::AcquireRequest;
use crate::token::FencingToken;

/// Tokens that the holders of one joined lock may have, one after the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TokenRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl LockGuard {
    /// Makes one lock of `first` and `second`, which were acquired for `request` and are not used
    /// yet. They are released in the opposite order.
    ///
    /// Neither may have passed a local queue: this takes its place.
    pub(crate) fn joined(
        request: &AcquireRequest,
        first: Self,
        second: Self,
        tokens: Option<TokenRange>,
        backend: &'static str,
    ) -> Result<Self> {
        // Its background work is that of the first, which a shutdown waits for.
        let engine = first.hold().engine().named(backend);
        let sent = engine.now();
        let parts: Parts = Arc::new([Arc::clone(first.hold()), Arc::clone(second.hold())]);
        let lease = Arc::new(Joined {
            parts: Arc::clone(&parts),
            guards: Mutex::new(Some((first, second))),
            control: Mutex::new(None),
            // No holder has a token before the first one.
            token: AtomicU64::new(tokens.map_or(0, |tokens| tokens.first)),
            last_token: tokens.map(|tokens| tokens.last),
        });
        let token = tokens.map(|tokens| FencingToken::new(tokens.first));
        let pending = engine.pending(request.key(), Arc::clone(&lease) as _, request.ttl());
        for part in parts.iter() {
            part.keep(request.renewal() == Renewal::Automatic);
        }
        let grant = Grant::new(sent, token);
        let guard = pending.granted_with(request, grant, Some(Arc::clone(&parts)))?;
        let hook: Arc<dyn ReleaseHook> = Arc::new(Whole(Arc::downgrade(&lease)));
        for part in parts.iter() {
            part.set_release_hook(Arc::clone(&hook));
            // A loss is either seen here or reported to the hook.
            if part.is_over_after_hook() {
                lease.part_ended(part);
            }
        }
        guard.ensure_held()?;
        Ok(guard)
    }
}

/// The lease of two locks, each of which is renewed by itself.
struct Joined {
    parts: Parts,
    /// Taken when the lock ends.
    guards: Mutex<Option<(LockGuard, LockGuard)>>,
    control: Mutex<Option<LeaseControl>>,
    token: AtomicU64,
    last_token: Option<u64>,
}

impl Joined {
    fn part_ended(&self, part: &HeldLease) {
        // A part that was released is not lost.
        let Some(reason) = part.lost_reason() else {
            return;
        };
        let control = lock(&self.control).clone();
        if let Some(control) = control {
            control.lose(reason);
        }
    }
}

#[async_trait]
impl Lease for Joined {
    fn liveness(&self) -> Liveness {
        Liveness::Reported
    }

    fn attach(&self, control: LeaseControl) {
        *lock(&self.control) = Some(control);
        for part in self.parts.iter() {
            self.part_ended(part);
        }
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        let lasts = |part: &Arc<HeldLease>| {
            let left = part
                .deadline()
                .map(|until| until.since(part.engine().now()));
            left.is_some_and(|left| left >= part.timing().min_handed_over())
        };
        let Some(last) = self.last_token else {
            return Ok(None);
        };
        if !self.parts.iter().all(lasts) {
            return Ok(None);
        }
        let next = self.token.fetch_add(1, Ordering::AcqRel) + 1;
        Ok((next <= last).then(|| FencingToken::new(next)))
    }

    async fn downgrade(&self) -> Result<()> {
        let message = "a lock on two backends cannot be downgraded";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    async fn release(&self) -> Result<Released> {
        let guards = lock(&self.guards).take();
        // Each goes on giving itself back once it has begun, so there is nothing to repeat.
        let Some((first, second)) = guards else {
            return Ok(Released::Clean);
        };
        // Neither is renewed from here on, however long the other one takes.
        let (first, second) = (first.releasing(), second.releasing());
        // The next one asks for the first, and shall find the second free when it has that.
        let second = second.await;
        let first = first.await;
        Ok(match (first?, second?) {
            (Released::Clean, Released::Clean) => Released::Clean,
            _ => Released::AlreadyLost,
        })
    }
}

/// The lock was not released: its holder abandoned it.
impl Drop for Joined {
    fn drop(&mut self) {
        if let Some((first, second)) = lock(&self.guards).take() {
            first.abandon();
            second.abandon();
        }
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined")
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

/// Receives the ends of the parts. The lease owns the parts, so they must not own the lease.
struct Whole(Weak<Joined>);

#[async_trait]
impl ReleaseHook for Whole {
    async fn hand_over(&self, lease: ReleasedLease) -> Option<ReleasedLease> {
        Some(lease)
    }

    fn on_ended(&self, hold: &HeldLease) {
        if let Some(whole) = self.0.upgrade() {
            whole.part_ended(hold);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
