//! What passes between the tasks of one key: the lock, or the right to contend for it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::contended;
use super::contest::Contest;
use super::line::{Arrival, Call, Joining, Left, Seated};
use super::table::{HashedKey, Table};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{Hold, Home, LockGuard, Returned};
use crate::key::LockKey;
use crate::request::AcquireRequest;

/// One key of one table.
#[derive(Clone)]
pub(super) struct Seat {
    table: Arc<Table>,
    key: HashedKey,
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
        let key = table.hashed(key);
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
            if line.is_open() {
                let contest = line.open(request.ttl());
                return Ok(Arrival::Contend(Contender::new(self, contest)));
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
    fn seat(&self, guard: &LockGuard, request: &AcquireRequest, handovers: u32) -> News {
        guard.set_home(Arc::new(self.clone()));
        let hold = Arc::clone(guard.shared_hold());
        let owner = request.owner().cloned();
        self.table.change(&self.key, |line| {
            // What comes from the server comes through the contender.
            if handovers == 0 {
                line.contending = None;
            }
            line.run.seat(handovers, self.table.handovers);
            // A lock that was lost before it had a home has told nobody.
            line.seated = (!hold.was_over_at_home()).then_some(Seated { hold, owner });
            News {
                joining: line.joining(),
                call: line.call(Left::Lock),
            }
        })
    }

    /// Tells the next task to contend, if one has to.
    fn tell(&self, call: Option<Call>, attempt: Option<Attempt>) {
        if let Some(Call { turn, contest }) = call {
            let contender = Contender {
                seat: self.clone(),
                contest,
                inherited: attempt.is_some(),
                attempt,
                done: false,
            };
            // A task that is gone by now drops the contender, which tells the one after it.
            drop(turn.send(Turn::Contend(contender)));
        }
    }

    /// Whether a wait that ended has seen nothing of the lock.
    pub(super) fn is_in_the_dark(&self) -> bool {
        self.table.change(&self.key, |line| line.is_in_the_dark())
    }
}

/// Whom to tell that a lock was seated, outside of the mutex.
struct News {
    joining: Vec<Joining>,
    call: Option<Call>,
}

impl News {
    fn tell(self, seat: &Seat) {
        seat.tell(self.call, None);
        for Joining { turn, guard } in self.joining {
            // A task that is gone by now drops the guard, and the lock stays with the others.
            drop(turn.send(Turn::Lock(guard)));
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
            let next = line.successor(lease.hold().terms().ttl());
            next.map(|next| (next, line.run.handovers + 1))
        });
        let Some((next, handovers)) = found else {
            return Some(lease);
        };
        let token = lease.hand_over().await;
        let Some(hold) = token.and_then(|token| lease.for_next(&next.request, token)) else {
            self.table.change(&self.key, |line| line.put_back(next));
            return Some(lease);
        };
        let guard = LockGuard::new(hold);
        self.seat(&guard, &next.request, handovers).tell(self);
        // A task that is gone by now drops the guard, which passes it on from there.
        drop(next.turn.send(Turn::Lock(guard)));
        None
    }

    fn vacated(&self, hold: &Hold) {
        let call = self.table.change(&self.key, |line| {
            // After a lock was broken, the next contender may be seated before the holder knows.
            if line.is_seated(hold) {
                line.seated = None;
            }
            line.call(Left::Lock)
        });
        self.tell(call, None);
    }
}

/// An acquisition under way on the server, with its place in the queue there.
pub(super) type Attempt = Pin<Box<dyn Future<Output = Result<LockGuard>> + Send>>;

/// The right to contend on the server; there is one for each key.
///
/// Whichever way it ends, by a grant, an error, or a task that is dropped, the next task is told.
pub(super) struct Contender {
    seat: Seat,
    contest: Arc<Contest>,
    attempt: Option<Attempt>,
    /// Whether the attempt was begun by another request than the one that contends.
    inherited: bool,
    done: bool,
}

impl Contender {
    fn new(seat: Seat, contest: Arc<Contest>) -> Self {
        Self {
            seat,
            contest,
            attempt: None,
            inherited: false,
            done: false,
        }
    }

    pub(super) fn contest(&self) -> &Arc<Contest> {
        &self.contest
    }

    /// Goes on with the attempt under way, or with a new one.
    pub(super) async fn attempt(
        &mut self,
        begin: impl FnOnce(&Arc<Contest>) -> Attempt + Send,
    ) -> Result<LockGuard> {
        if self.attempt.is_some() && !self.contest.is_here() {
            self.begin_anew();
        }
        if self.attempt.is_none() {
            self.contest.begin();
            self.attempt = Some(begin(&self.contest));
        }
        std::future::poll_fn(|cx| {
            let attempt = self.attempt.as_mut().expect("BUG: begun above");
            match catch_unwind(AssertUnwindSafe(|| attempt.as_mut().poll(cx))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(answer)) => {
                    self.attempt = None;
                    Poll::Ready(answer)
                }
                Err(panic) => {
                    // Whoever inherited it would panic as well.
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
        self.contest = Arc::new(self.contest.anew(self.contest.ttl));
        let contest = Arc::clone(&self.contest);
        let Seat { table, key } = &self.seat;
        table.change(key, |line| line.contending = Some(contest));
    }

    /// The server granted the lock; `None` if the request that began the attempt has lost it, so
    /// that the one that inherited it has to ask for itself.
    pub(super) fn seated(
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
        self.seat.seat(&guard, request, 0).tell(&self.seat);
        Some(guard)
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let left = match self.attempt {
            Some(_) => Left::Attempt(&self.contest),
            None => Left::Nothing,
        };
        let call = self.seat.table.change(&self.seat.key, |line| {
            line.contending = None;
            line.call(left)
        });
        let attempt = self.attempt.take();
        let inherits = |call: &Call| Arc::ptr_eq(&call.contest, &self.contest);
        let attempt = attempt.filter(|_| call.as_ref().is_some_and(inherits));
        self.seat.tell(call, attempt);
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
