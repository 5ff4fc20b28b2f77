//! What passes between the tasks of one key: the lock, or the right to contend for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime;
use tokio::sync::oneshot;

use super::contended;
use super::line::{Arrival, Call, Seated};
use super::table::Table;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{Hold, Home, LockGuard, Returned};
use crate::key::LockKey;
use crate::request::AcquireRequest;

/// One key of one table.
#[derive(Clone)]
pub(super) struct Seat {
    table: Arc<Table>,
    key: LockKey,
}

/// What a waiter is told.
pub(super) enum Turn {
    /// It is the contender of this process now.
    Contend(Contender),
    /// It has the lock.
    Lock(LockGuard),
}

impl Seat {
    pub(super) fn new(table: Arc<Table>, key: LockKey) -> Self {
        Self { table, key }
    }

    pub(super) fn arrive(self, request: &AcquireRequest) -> Result<Arrival> {
        let (table, key) = (Arc::clone(&self.table), self.key.clone());
        table.change(&key, |line| {
            if let Some(guard) = line.enter(request)? {
                return Ok(Arrival::Enter(guard));
            }
            if line.refuses(request) {
                return Err(contended(request));
            }
            if line.is_open(table.max_handovers) {
                line.contending = true;
                return Ok(Arrival::Contend(Contender::new(self)));
            }
            if line.is_full(table.max_waiters) {
                return Err(full(request, table.max_waiters));
            }
            let turn = line.join(request.clone());
            Ok(Arrival::Wait(InLine {
                seat: self,
                turn,
                told: false,
            }))
        })
    }

    /// Seats `guard`, and lets the lock come back here at its end.
    fn seat(&self, guard: &LockGuard, request: &AcquireRequest, handovers: u32) -> Option<Call> {
        guard.set_home(Arc::new(self.clone()));
        let hold = Arc::clone(guard.shared_hold());
        let owner = request.owner().cloned();
        self.table.change(&self.key, |line| {
            // What comes from the server comes through the contender.
            line.contending &= handovers != 0;
            line.handovers = handovers;
            // A lock that was lost before it had a home has told nobody.
            line.seated = (!hold.was_over_at_home()).then_some(Seated { hold, owner });
            line.call(self.table.max_handovers)
        })
    }

    /// Tells the next task to contend, if one has to.
    fn tell(&self, call: Option<Call>, attempt: Option<Attempt>) {
        if let Some(call) = call {
            // An attempt with another ttl would give its lease to renewals of that length.
            let attempt = attempt.filter(|attempt| attempt.ttl == call.ttl);
            let inherited = attempt.is_some();
            let contender = Contender {
                seat: self.clone(),
                attempt,
                inherited,
                done: false,
            };
            // A task that is gone by now drops the contender, which tells the one after it.
            drop(call.turn.send(Turn::Contend(contender)));
        }
    }
}

#[async_trait]
impl Home for Seat {
    async fn pass_on(&self, lease: Returned) -> Option<Returned> {
        let found = self.table.change(&self.key, |line| {
            if !line.is_seated(lease.hold()) {
                return None;
            }
            let next = line.successor(lease.hold().terms().ttl(), self.table.max_handovers);
            next.map(|next| (next, line.handovers + 1))
        });
        let Some((next, handovers)) = found else {
            return Some(lease);
        };
        let Some(token) = lease.hand_over().await else {
            self.table.change(&self.key, |line| line.put_back(next));
            return Some(lease);
        };
        let guard = LockGuard::new(lease.for_next(&next.request, token));
        let call = self.seat(&guard, &next.request, handovers);
        // A task that is gone by now drops the guard, which passes it on from there.
        drop(next.turn.send(Turn::Lock(guard)));
        self.tell(call, None);
        None
    }

    fn vacated(&self, hold: &Hold) {
        let call = self.table.change(&self.key, |line| {
            // After a lock was broken, the next contender may be seated before the holder knows.
            if line.is_seated(hold) {
                line.seated = None;
            }
            line.call(self.table.max_handovers)
        });
        self.tell(call, None);
    }
}

/// An acquisition under way on the server, with its place in the queue there.
pub(super) struct Attempt {
    pub(super) answer: Pin<Box<dyn Future<Output = Result<LockGuard>> + Send>>,
    pub(super) ttl: Duration,
    /// Where its timers are: on another runtime they would panic once that one is gone.
    pub(super) runtime: Option<runtime::Id>,
}

pub(super) fn current_runtime() -> Option<runtime::Id> {
    runtime::Handle::try_current()
        .ok()
        .map(|handle| handle.id())
}

/// The right to contend on the server; there is one for each key.
///
/// Whichever way it ends, by a grant, an error, or a task that is dropped, the next task is told.
pub(super) struct Contender {
    seat: Seat,
    attempt: Option<Attempt>,
    /// Whether the attempt was begun by another request than the one that contends.
    inherited: bool,
    done: bool,
}

impl Contender {
    fn new(seat: Seat) -> Self {
        Self {
            seat,
            attempt: None,
            inherited: false,
            done: false,
        }
    }

    /// The attempt under way, or a new one.
    pub(super) fn attempt(
        &mut self,
        begin: impl FnOnce() -> Attempt,
    ) -> impl Future<Output = Result<LockGuard>> + Send {
        if let Some(attempt) = &self.attempt
            && attempt.runtime != current_runtime()
        {
            self.attempt = None;
            self.inherited = false;
        }
        &mut self.attempt.get_or_insert_with(begin).answer
    }

    /// The attempt has answered and must not be polled again.
    pub(super) fn answered(&mut self) {
        self.attempt = None;
    }

    /// The server granted the lock.
    pub(super) fn seated(
        mut self,
        guard: LockGuard,
        request: &AcquireRequest,
    ) -> Result<LockGuard> {
        let guard = if self.inherited {
            guard.reassigned(request)?
        } else {
            guard
        };
        self.done = true;
        let call = self.seat.seat(&guard, request, 0);
        self.seat.tell(call, None);
        Ok(guard)
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let call = self.seat.table.change(&self.seat.key, |line| {
            line.contending = false;
            line.call(self.seat.table.max_handovers)
        });
        self.seat.tell(call, self.attempt.take());
    }
}

/// A place in line; dropped, it is left.
pub(super) struct InLine {
    seat: Seat,
    turn: oneshot::Receiver<Turn>,
    told: bool,
}

impl Future for InLine {
    /// `None` if whoever was about to tell is gone.
    type Output = Option<Turn>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let turn = std::task::ready!(Pin::new(&mut self.turn).poll(cx));
        self.told = true;
        Poll::Ready(turn.ok())
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if !self.told {
            // What was sent meanwhile is dropped with the channel, and passes itself on.
            self.turn.close();
            self.seat.table.change(&self.seat.key, |line| line.left());
        }
    }
}

fn full(request: &AcquireRequest, max: usize) -> Error {
    let message = format!("{max} tasks of this process wait for the lock already");
    Error::new(ErrorKind::QueueFull, message).with_key(request.key())
}
