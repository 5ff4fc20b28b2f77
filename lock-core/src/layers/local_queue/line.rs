//! The line of one key: who is seated, who contends, who waits. Changed under the table's mutex.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::contest::Contest;
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
    pub(super) contending: Option<Arc<Contest>>,
    pub(super) run: Run,
    waiting: VecDeque<Waiter>,
    /// At least how many of `waiting` were dropped since it was swept.
    gone: usize,
}

/// How the lease has passed from hand to hand since it came from the server.
#[derive(Default)]
pub(super) struct Run {
    pub(super) handovers: u32,
    since: Option<Instant>,
    /// Whether the lock goes back to the server when whoever is seated gives it up. Settled when it
    /// is seated: the next contender has to know by then.
    is_last: bool,
}

/// How long a run may be: so many hand-overs, or so much time, whichever allows more.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandOvers {
    pub(super) most: u32,
    pub(super) time: Duration,
}

impl Run {
    pub(super) fn seat(&mut self, handovers: u32, allowed: HandOvers) {
        let since = match self.since {
            Some(since) if handovers > 0 => since,
            _ => Instant::now(),
        };
        let is_over = handovers >= allowed.most && since.elapsed() >= allowed.time;
        *self = Self {
            handovers,
            since: Some(since),
            is_last: is_over,
        };
    }
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

impl Waiter {
    fn owner(&self) -> Option<&Owner> {
        self.request.owner()
    }
}

/// What a contender finds that is told to contend.
#[derive(Clone, Copy)]
pub(super) enum Left<'a> {
    /// An attempt under way on the server.
    Attempt(&'a Arc<Contest>),
    /// A lock that was held in this process until now.
    Lock,
    Nothing,
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

/// A task that has to contend.
pub(super) struct Call {
    pub(super) turn: oneshot::Sender<Turn>,
    pub(super) contest: Arc<Contest>,
}

/// A task whose owner has been seated, and the guard that it enters with.
pub(super) struct Joining {
    pub(super) turn: oneshot::Sender<Turn>,
    pub(super) guard: LockGuard,
}

impl Line {
    pub(super) fn is_idle(&self) -> bool {
        self.seated.is_none() && self.contending.is_none() && self.waiting.is_empty()
    }

    pub(super) fn is_seated(&self, hold: &Hold) -> bool {
        self.seated
            .as_ref()
            .is_some_and(|seated| std::ptr::eq(&*seated.hold, hold))
    }

    /// Whether who comes now goes to the server at once.
    pub(super) fn is_open(&mut self) -> bool {
        self.contending.is_none() && self.is_last() && self.head().is_none()
    }

    /// Makes who comes the contender.
    pub(super) fn open(&mut self, ttl: Duration) -> Arc<Contest> {
        let contest = Arc::new(Contest::new(ttl, self.seated.is_some()));
        self.contending = Some(Arc::clone(&contest));
        contest
    }

    /// Whether nothing is known of the lock, because the server has not answered the contender.
    pub(super) fn is_in_the_dark(&self) -> bool {
        let contending = self.contending.as_ref();
        self.seated.is_none() && contending.is_some_and(|contest| !contest.has_seen_held())
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
        let waiter = Waiter { request, turn };
        waiter.owner().inspect(|owner| owner.stand_in_line());
        self.waiting.push_back(waiter);
        receiver
    }

    /// Takes out the waiters whose owner is seated; they need not wait for themselves.
    pub(super) fn joining(&mut self) -> Vec<Joining> {
        let Some(Seated { hold, owner }) = &self.seated else {
            return Vec::new();
        };
        let Some(owner) = owner.as_ref().filter(|owner| owner.is_in_line()) else {
            return Vec::new();
        };
        let mut joining = Vec::new();
        for waiter in std::mem::take(&mut self.waiting) {
            let same = waiter.owner() == Some(owner) && !waiter.turn.is_closed();
            match same.then(|| LockGuard::reentered(hold)).flatten() {
                Some(guard) => {
                    owner.leave_line();
                    let turn = waiter.turn;
                    joining.push(Joining { turn, guard });
                }
                None => self.waiting.push_back(waiter),
            }
        }
        joining
    }

    /// A waiter gave up. The line is swept once half of it is gone, so that the cost is constant.
    pub(super) fn left(&mut self) {
        self.gone += 1;
        if self.gone * 2 > self.waiting.len() {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        self.waiting.retain(|waiter| {
            let gone = waiter.turn.is_closed();
            waiter.owner().filter(|_| gone).inspect(|o| o.leave_line());
            !gone
        });
        self.gone = 0;
    }

    /// Whether the lock goes back to the server when whoever is seated gives it up.
    fn is_last(&self) -> bool {
        self.seated.is_none() || self.run.is_last
    }

    /// The next waiter that is alive and may take a lease from another task of this process.
    pub(super) fn successor(&mut self, ttl: Duration) -> Option<Waiter> {
        if self.run.is_last {
            return None;
        }
        let head = self.head()?;
        // All renewals of a lease carry one ttl: a shorter one that is late on its way would cut the
        // lease under a holder with a longer one.
        if head.request.ttl() != ttl {
            return None;
        }
        // A lease that nobody renews would reach its holder half used up.
        (head.request.renewal() == Renewal::Automatic).then(|| self.pop())?
    }

    pub(super) fn put_back(&mut self, waiter: Waiter) {
        waiter.owner().inspect(|owner| owner.stand_in_line());
        self.waiting.push_front(waiter);
    }

    fn pop(&mut self) -> Option<Waiter> {
        let waiter = self.waiting.pop_front()?;
        waiter.owner().inspect(|owner| owner.leave_line());
        Some(waiter)
    }

    /// The waiter that has to go to the server now, if any: when nobody is seated, or when the one
    /// who is seated will give the lock back to the server. It goes on with what was `left` by a
    /// contender that gave up, if it can: with another ttl, the lease would be renewed to that.
    pub(super) fn call(&mut self, left: Left<'_>) -> Option<Call> {
        if self.contending.is_some() || !self.is_last() {
            return None;
        }
        self.head()?;
        let Waiter { request, turn } = self.pop()?;
        let contest = match left {
            Left::Attempt(contest) if contest.ttl == request.ttl() => Arc::clone(contest),
            Left::Attempt(contest) => Arc::new(contest.anew(request.ttl())),
            Left::Lock => Arc::new(Contest::new(request.ttl(), true)),
            Left::Nothing => Arc::new(Contest::new(request.ttl(), false)),
        };
        self.contending = Some(Arc::clone(&contest));
        Some(Call { turn, contest })
    }

    fn head(&mut self) -> Option<&Waiter> {
        while self
            .waiting
            .front()
            .is_some_and(|waiter| waiter.turn.is_closed())
        {
            self.pop();
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
