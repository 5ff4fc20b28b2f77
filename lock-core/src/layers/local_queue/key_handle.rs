//! What passes between the tasks of one key: the lock, or the right to contend for it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::key_queue::{Arrival, KeyQueue, LineEnd, LocalHolder, NextContender, Vacancy};
use super::{KeyQueues, unanswered};
use crate::attempt_state::AttemptState;
use crate::engine::{MIN_ATTEMPT, catch_panic, current_runtime};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{HandOver, HeldLease, LockGuard, ReleaseHook, ReleasedLease, Undelivered};
use crate::key::LockKey;
use crate::layers::HashedKey;
use crate::request::AcquireRequest;

/// One key of one table.
#[derive(Clone)]
pub(super) struct KeyHandle {
    table: Arc<KeyQueues>,
    key: HashedKey,
}

/// The message that wakes a waiter.
pub(super) enum Wakeup {
    /// It is the contender of this process now.
    Contend(Contender),
    /// It has the lock.
    Lock(Undelivered<LockGuard>),
}

impl KeyHandle {
    pub(super) fn new(table: Arc<KeyQueues>, key: LockKey) -> Self {
        let key = table.keys.hashed(key);
        Self { table, key }
    }

    /// Changes the line of the key, which begins idle; a line that is idle afterwards vanishes.
    fn change<T>(&self, change: impl FnOnce(&mut KeyQueue) -> T) -> T {
        self.table.keys.change(&self.key, change)
    }

    pub(super) fn arrive(self, request: &AcquireRequest, end: LineEnd) -> Result<Arrival> {
        let (handle, max_waiters) = (self.clone(), self.table.limits.max_waiters);
        let mut silent = None;
        let arrival = handle.change(|queue| {
            if let Some(guard) = queue.enter(request)? {
                return Ok(Arrival::Enter(guard));
            }
            if queue.refuses(request) {
                if queue.is_silent() {
                    silent.clone_from(&queue.contending);
                }
                return Err(Error::contended(request.wait()));
            }
            if queue.is_open() {
                let state = queue.open(request.ttl());
                return Ok(Arrival::Contend(Contender::new(self, state)));
            }
            if end == LineEnd::Back && queue.is_full(max_waiters) {
                return Err(too_many(max_waiters));
            }
            let wakeup = queue.join(request.clone(), end);
            Ok(Arrival::Wait(QueuedWaiter {
                handle: self,
                wakeup,
                woken: false,
            }))
        });
        match silent {
            Some(attempt) => Err(unanswered(request, &attempt)),
            None => arrival,
        }
    }

    /// Seats `guard`, lets the lock come back here at its end, and wakes the tasks that enter or contend now.
    fn set_holder(&self, guard: &LockGuard, request: &AcquireRequest, handovers: u32) {
        let hold = Arc::clone(guard.hold());
        hold.set_release_hook(Arc::new(self.clone()));
        let owner = request.owner().cloned();
        let (joining, next) = self.change(|queue| {
            // What comes from the server comes through the contender.
            if handovers == 0 {
                queue.contending = None;
            }
            queue.handover_run.record(handovers, self.table.limits);
            // A lock that was lost before its hook was set has reported to no one.
            let is_over = hold.is_over_after_hook();
            let mut left = Vacancy::Lock;
            if is_over && hold.is_lost_by_silence() {
                left = Vacancy::Nothing;
                queue.mark_unresponsive();
            }
            queue.holder = (!is_over).then_some(LocalHolder { hold, owner });
            (queue.joining(), queue.promote(left))
        });
        self.notify(next, None);
        for (wakeup, guard) in joining {
            // A task that is gone by now drops the guard, and the lock stays with the others.
            wake(wakeup, Wakeup::Lock(Undelivered::new(guard)));
        }
    }

    /// Tells the next task to contend, if one has to.
    fn notify(&self, next: Option<NextContender>, attempt: Option<PendingAcquire>) {
        if let Some(NextContender { wakeup, state }) = next {
            let contender = Contender {
                handle: self.clone(),
                state,
                inherited: attempt.is_some(),
                attempt,
                done: false,
            };
            // If the task is gone, dropping the contender wakes the next one.
            wake(wakeup, Wakeup::Contend(contender));
        }
    }

    /// Until when a wait goes on after `deadline`, while the server has not answered an attempt that
    /// has just begun.
    pub(super) fn extended(&self, deadline: Instant) -> Option<Instant> {
        let min_end = self.change(|queue| queue.min_end());
        min_end.map(|min_end| min_end.min(deadline + MIN_ATTEMPT))
    }

    /// The error of a wait that has timed out.
    pub(super) fn timed_out(&self, request: &AcquireRequest) -> Error {
        let unknown = self.change(|queue| queue.contending.clone().filter(|_| queue.is_unknown()));
        match unknown {
            Some(attempt) => unanswered(request, &attempt),
            None => Error::contended(request.wait()),
        }
    }
}

/// Wakes a task. One whose waker panics must not cost the others their lock.
fn wake(task: oneshot::Sender<Wakeup>, with: Wakeup) {
    let _woken = catch_panic(|| drop(task.send(with)));
}

impl ReleaseHook for KeyHandle {
    fn hand_over(&self, lease: ReleasedLease) -> Result<HandOver, ReleasedLease> {
        let found = self.change(|queue| {
            if !queue.is_held_by(lease.hold()) {
                return None;
            }
            let next = queue.successor(lease.hold());
            next.map(|next| (next, queue.handover_run.handovers.saturating_add(1)))
        });
        let Some((next, handovers)) = found else {
            return Err(lease);
        };
        let handle = self.clone();
        Ok(Box::pin(async move {
            let token = lease.hand_over().await;
            let Some(hold) = token.and_then(|token| lease.for_next(&next.request, token)) else {
                handle.change(|queue| queue.put_back(next));
                return Some(lease);
            };
            let guard = LockGuard::new(hold);
            handle.set_holder(&guard, &next.request, handovers);
            // A task that is gone by now drops the guard, which passes it on from there.
            wake(next.wakeup, Wakeup::Lock(Undelivered::new(guard)));
            None
        }))
    }

    fn on_ended(&self, hold: &HeldLease) {
        // A server that was silent until the loss has not said who holds the lock now.
        let is_silent = hold.is_lost_by_silence();
        let left = match is_silent {
            true => Vacancy::Nothing,
            false => Vacancy::Lock,
        };
        let next = self.change(|queue| {
            // After a lock was broken, the next contender may hold it before the old holder
            // notices. This also runs again when a lost guard is dropped, which says nothing new
            // about the server.
            if queue.is_held_by(hold) {
                queue.holder = None;
                if is_silent {
                    queue.mark_unresponsive();
                }
            }
            queue.promote(left)
        });
        self.notify(next, None);
    }
}

/// An acquisition under way on the server, with its place in the queue there.
struct PendingAcquire {
    /// Where its timers are: on another runtime they would panic once that one is gone.
    runtime: Option<runtime::Id>,
    answer: Acquiring,
}

pub(super) type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard>> + Send>>;

/// The right to contend on the server; there is one for each key.
///
/// However it ends, by a grant, an error or a dropped task, the next task is woken.
pub(super) struct Contender {
    handle: KeyHandle,
    state: Arc<AttemptState>,
    attempt: Option<PendingAcquire>,
    /// Whether the attempt was begun by another request than the one that contends.
    inherited: bool,
    done: bool,
}

impl Contender {
    fn new(handle: KeyHandle, state: Arc<AttemptState>) -> Self {
        Self {
            handle,
            state,
            attempt: None,
            inherited: false,
            done: false,
        }
    }

    pub(super) fn state(&self) -> &Arc<AttemptState> {
        &self.state
    }

    /// Goes on with the attempt under way, or with a new one.
    pub(super) async fn attempt(
        &mut self,
        begin: impl FnOnce(&Arc<AttemptState>) -> Acquiring + Send,
    ) -> Result<LockGuard> {
        let runtime = current_runtime();
        let is_elsewhere = |attempt: &PendingAcquire| attempt.runtime != runtime;
        if self.attempt.as_ref().is_some_and(is_elsewhere) {
            self.begin_anew();
        }
        if self.attempt.is_none() {
            let answer = begin(&self.state);
            self.attempt = Some(PendingAcquire { runtime, answer });
        }
        std::future::poll_fn(|cx| {
            let attempt = self.attempt.as_mut().expect("BUG: begun above");
            match catch_unwind(AssertUnwindSafe(|| attempt.answer.as_mut().poll(cx))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(answer)) => {
                    self.attempt = None;
                    Poll::Ready(answer)
                }
                Err(panic) => {
                    // A task that inherits it would panic as well.
                    self.attempt = None;
                    resume_unwind(panic)
                }
            }
        })
        .await
    }

    /// Drops the attempt of another runtime.
    fn begin_anew(&mut self) {
        self.attempt = None;
        self.inherited = false;
        self.state = Arc::new(self.state.anew(self.state.ttl));
        let state = Arc::clone(&self.state);
        self.handle.change(|queue| queue.contending = Some(state));
    }

    /// The server granted the lock; `None` if the request that began the attempt has lost it, so
    /// that the one that inherited it has to ask for itself.
    pub(super) fn granted(
        &mut self,
        guard: LockGuard,
        request: &AcquireRequest,
    ) -> Option<LockGuard> {
        let guard = if std::mem::take(&mut self.inherited) {
            guard.reassigned(request)?
        } else {
            guard
        };
        self.done = true;
        self.handle.set_holder(&guard, request, 0);
        Some(guard)
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let left = match self.attempt {
            Some(_) => Vacancy::Attempt(&self.state),
            None => Vacancy::Nothing,
        };
        let next = self.handle.change(|queue| {
            queue.contending = None;
            queue.promote(left)
        });
        let attempt = self.attempt.take();
        let inherits = |next: &NextContender| Arc::ptr_eq(&next.state, &self.state);
        let attempt = attempt.filter(|_| next.as_ref().is_some_and(inherits));
        self.handle.notify(next, attempt);
    }
}

/// A place in line; dropped, it is left.
pub(super) struct QueuedWaiter {
    handle: KeyHandle,
    wakeup: oneshot::Receiver<Wakeup>,
    woken: bool,
}

impl QueuedWaiter {
    /// The error of its wait, before it leaves the line. It may have become the contender at the same time: the
    /// queue knows nothing more of the server once it is gone.
    pub(super) fn timed_out(self, request: &AcquireRequest) -> Error {
        self.handle.timed_out(request)
    }
}

impl Future for QueuedWaiter {
    /// `None` if the sender is gone.
    type Output = Option<Wakeup>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let wakeup = std::task::ready!(Pin::new(&mut self.wakeup).poll(cx));
        self.woken = true;
        Poll::Ready(wakeup.ok())
    }
}

impl Drop for QueuedWaiter {
    fn drop(&mut self) {
        if !self.woken {
            // What was sent meanwhile is dropped with the channel, and passes itself on.
            self.wakeup.close();
            self.handle.change(KeyQueue::note_departure);
        }
    }
}

fn too_many(max: usize) -> Error {
    let message = format!("{max} tasks of this process wait for the lock already");
    Error::new(ErrorKind::QueueFull, message)
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::ext::DistributedLockExt as _;
    use crate::layers::LocalQueue;
    use crate::memory::Memory;

    #[test]
    fn a_waiter_that_becomes_the_contender_at_its_deadline_knows_of_no_holder() {
        let locks = LocalQueue::new(Arc::new(Memory::new()));
        let request = AcquireRequest::new(LockKey::new("k").unwrap());
        let arrive = || {
            let handle = locks.handle(&request);
            handle.arrive(&request, LineEnd::Back).unwrap()
        };
        let Arrival::Contend(contender) = arrive() else {
            panic!("another task contends");
        };
        let Arrival::Wait(waiter) = arrive() else {
            panic!("no task contends");
        };
        drop(contender);
        let error = waiter.timed_out(&request);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(locks.live_keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_count_of_hand_overs_does_not_overflow() {
        let engine = Engine::on_current_runtime("memory");
        let locks = LocalQueue::new(Arc::new(Memory::with_engine(engine)));
        let first = locks.lock("k").await.unwrap();
        let request = AcquireRequest::new(LockKey::new("k").unwrap());
        let handle = locks.handle(&request);
        handle.change(|queue| queue.handover_run.handovers = u32::MAX);
        let (next, released) = tokio::join!(locks.lock("k"), first.release());
        released.unwrap();
        let next = next.unwrap();
        let handovers = handle.change(|queue| queue.handover_run.handovers);
        assert_eq!((next.is_held(), handovers), (true, u32::MAX));
    }
}
