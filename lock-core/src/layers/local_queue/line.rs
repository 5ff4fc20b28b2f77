//! The line of one key: who is seated, who contends, who waits. Changed under the table's mutex.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::seat::{Contender, InLine, Turn};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{Hold, LockGuard};
use crate::owner::Owner;
use crate::request::{AcquireRequest, Renewal, Wait};

/// The state of one key.
///
/// Two invariants: at most one task of this process contends on the server; and whoever waits is
/// woken by somebody, because a lock is seated whose end calls `vacated`, or a contender is under
/// way whose end does the same.
#[derive(Default)]
pub(super) struct Line {
    pub(super) seated: Option<Seated>,
    pub(super) contending: bool,
    /// Hand-overs since the lease came from the server.
    pub(super) handovers: u32,
    waiting: VecDeque<Waiter>,
    /// At least how many of `waiting` were dropped since it was swept.
    gone: usize,
}

/// The lock that a task of this process holds.
pub(super) struct Seated {
    pub(super) hold: Arc<Hold>,
    pub(super) owner: Option<Owner>,
}

pub(super) struct Waiter {
    pub(super) request: AcquireRequest,
    pub(super) turn: oneshot::Sender<Turn>,
}

/// What a task finds when it comes.
pub(super) enum Arrival {
    /// Nobody is before it: it goes to the server.
    Contend(Contender),
    /// Its owner is inside.
    Enter(LockGuard),
    /// It stands in line.
    Wait(InLine),
}

/// A task that has to contend: how to tell it, and the ttl that it wants.
pub(super) struct Call {
    pub(super) turn: oneshot::Sender<Turn>,
    pub(super) ttl: Duration,
}

impl Line {
    pub(super) fn is_idle(&self) -> bool {
        self.seated.is_none() && !self.contending && self.waiting.is_empty()
    }

    pub(super) fn is_seated(&self, hold: &Hold) -> bool {
        self.seated
            .as_ref()
            .is_some_and(|seated| std::ptr::eq(&*seated.hold, hold))
    }

    /// Whether who comes now goes to the server at once.
    pub(super) fn is_open(&mut self, max_handovers: u32) -> bool {
        !self.contending && self.is_last(max_handovers) && self.head().is_none()
    }

    pub(super) fn is_full(&mut self, max_waiters: usize) -> bool {
        if self.waiting.len() >= max_waiters {
            self.sweep();
        }
        self.waiting.len() >= max_waiters
    }

    /// A second guard for a request whose owner is seated.
    pub(super) fn enter(&self, request: &AcquireRequest) -> Result<Option<LockGuard>> {
        let owner = request.owner();
        let same = |seated: &&Seated| owner.is_some() && owner == seated.owner.as_ref();
        let Some(seated) = self.seated.as_ref().filter(same) else {
            return Ok(None);
        };
        let guard = LockGuard::reentered(&seated.hold);
        if guard.is_none() && !seated.hold.is_exclusive() && !seated.hold.is_over() {
            // In line the owner would wait for itself.
            let message = "the owner has made its lock a shared one";
            return Err(Error::new(ErrorKind::Unsupported, message).with_key(request.key()));
        }
        Ok(guard)
    }

    pub(super) fn join(&mut self, request: AcquireRequest) -> oneshot::Receiver<Turn> {
        let (turn, receiver) = oneshot::channel();
        self.waiting.push_back(Waiter { request, turn });
        receiver
    }

    /// A waiter gave up. The line is swept once half of it is gone, so that the cost is constant.
    pub(super) fn left(&mut self) {
        self.gone += 1;
        if self.gone * 2 > self.waiting.len() {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        self.waiting.retain(|waiter| !waiter.turn.is_closed());
        self.gone = 0;
    }

    /// Whether the lock goes back to the server when whoever is seated gives it up.
    fn is_last(&self, max_handovers: u32) -> bool {
        self.seated.is_none() || self.handovers >= max_handovers
    }

    /// The next waiter that is alive and may take a lease from another task of this process.
    pub(super) fn successor(&mut self, ttl: Duration, max_handovers: u32) -> Option<Waiter> {
        if self.handovers >= max_handovers {
            return None;
        }
        let head = self.head()?;
        // All renewals of a lease carry one ttl: a shorter one that is late on its way would cut the
        // lease under a holder with a longer one.
        if head.request.ttl() != ttl {
            return None;
        }
        // A lease that nobody renews would reach its holder half used up.
        (head.request.renewal() == Renewal::Automatic).then(|| self.waiting.pop_front())?
    }

    pub(super) fn put_back(&mut self, waiter: Waiter) {
        self.waiting.push_front(waiter);
    }

    /// The waiter that has to go to the server now, if any: when nobody is seated, or when the one
    /// who is seated will give the lock back to the server.
    pub(super) fn call(&mut self, max_handovers: u32) -> Option<Call> {
        if self.contending || !self.is_last(max_handovers) {
            return None;
        }
        self.head()?;
        let waiter = self.waiting.pop_front()?;
        self.contending = true;
        Some(Call {
            turn: waiter.turn,
            ttl: waiter.request.ttl(),
        })
    }

    fn head(&mut self) -> Option<&Waiter> {
        while self
            .waiting
            .front()
            .is_some_and(|waiter| waiter.turn.is_closed())
        {
            self.waiting.pop_front();
        }
        self.waiting.front()
    }

    /// Whether a request that does not wait has to give up.
    pub(super) fn refuses(&self, request: &AcquireRequest) -> bool {
        let no_wait = matches!(request.wait(), Wait::Never)
            || matches!(request.wait(), Wait::AtMost(limit) if limit.is_zero());
        no_wait && !self.is_idle()
    }
}
