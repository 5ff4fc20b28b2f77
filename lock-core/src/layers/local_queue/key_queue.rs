//! The queue of one key: its local holder, contender and waiters. Changed under the table's mutex.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Limits;
use super::key_handle::{Contender, QueuedWaiter, Wakeup};
use crate::attempt_state::AttemptState;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{HeldLease, LockGuard};
use crate::layers::KeyState;
use crate::mode::Renewal;
use crate::owner::Owner;
use crate::request::AcquireRequest;

/// The state of one key.
///
/// Two invariants: at most one task of this process contends on the server; and every waiter is
/// woken, because there is a local holder whose end calls `on_ended`, or a contender whose end does
/// the same.
#[derive(Default)]
pub(super) struct KeyQueue {
    pub(super) holder: Option<LocalHolder>,
    pub(super) contending: Option<Arc<AttemptState>>,
    pub(super) handover_run: HandoverRun,
    waiting: VecDeque<LocalWaiter>,
    /// How many waiters have left since `waiting` was swept: at most so many in it are dropped.
    gone: usize,
}

/// How the lease has passed from hand to hand since it came from the server.
#[derive(Default)]
pub(super) struct HandoverRun {
    pub(super) handovers: u32,
    since: Option<Instant>,
    /// Whether the current holder must release to the server instead of handing over. Decided at
    /// grant time, because the next contender depends on it.
    is_last: bool,
}

impl HandoverRun {
    pub(super) fn record(&mut self, handovers: u32, limits: Limits) {
        let since = match self.since {
            Some(since) if handovers > 0 => since,
            _ => Instant::now(),
        };
        *self = Self {
            handovers,
            since: Some(since),
            is_last: handovers >= limits.max_handovers && since.elapsed() >= limits.handover_time,
        };
    }
}

/// The lock that a task of this process holds.
pub(super) struct LocalHolder {
    pub(super) hold: Arc<HeldLease>,
    pub(super) owner: Option<Owner>,
}

pub(super) struct LocalWaiter {
    pub(super) request: AcquireRequest,
    pub(super) wakeup: oneshot::Sender<Wakeup>,
}

impl LocalWaiter {
    fn owner(&self) -> Option<&Owner> {
        self.request.owner()
    }
}

/// What a promoted contender takes over.
#[derive(Clone, Copy)]
pub(super) enum Vacancy<'a> {
    /// An attempt under way on the server.
    Attempt(&'a Arc<AttemptState>),
    /// A lock that was held in this process until now.
    Lock,
    Nothing,
}

/// What a task finds when it comes.
pub(super) enum Arrival {
    /// The queue is empty: the task goes to the server.
    Contend(Contender),
    /// Its owner is inside.
    Enter(LockGuard),
    /// It stands in line.
    Wait(QueuedWaiter),
}

/// Where a task joins the line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LineEnd {
    /// It had its turn, and what it was sent is gone. There is always room for it.
    Front,
    /// It is new.
    Back,
}

/// A task that has to contend.
pub(super) struct NextContender {
    pub(super) wakeup: oneshot::Sender<Wakeup>,
    pub(super) state: Arc<AttemptState>,
}

impl KeyState for KeyQueue {
    fn is_idle(&self) -> bool {
        self.holder.is_none() && self.contending.is_none() && self.waiting.is_empty()
    }
}

impl KeyQueue {
    pub(super) fn is_held_by(&self, hold: &HeldLease) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| std::ptr::eq(&*holder.hold, hold))
    }

    /// Whether a new request goes to the server at once.
    pub(super) fn is_open(&mut self) -> bool {
        self.contending.is_none() && self.is_last() && self.head().is_none()
    }

    /// Makes the caller the contender.
    pub(super) fn open(&mut self, ttl: Duration) -> Arc<AttemptState> {
        let state = Arc::new(AttemptState::new(ttl, self.holder.is_some()));
        self.contending = Some(Arc::clone(&state));
        state
    }

    /// Whether nothing is known of the lock, because the server has not answered the contender.
    pub(super) fn is_unknown(&self) -> bool {
        let contending = self.contending.as_ref();
        self.holder.is_none() && contending.is_some_and(|state| !state.counts_as_held())
    }

    /// Whether that has lasted for longer than an answer takes.
    pub(super) fn is_silent(&self) -> bool {
        let contending = self.contending.as_ref();
        self.is_unknown() && contending.is_some_and(|state| state.is_overdue())
    }

    /// The server was silent until a local holder lost the lock.
    pub(super) fn mark_unresponsive(&self) {
        if let Some(attempt) = &self.contending {
            attempt.mark_unresponsive(None);
        }
    }

    /// Until when waits go on for the first answer to the contender, if there is none yet.
    pub(super) fn min_end(&self) -> Option<Instant> {
        let contending = self.contending.as_ref().filter(|_| self.holder.is_none());
        let unanswered = contending.filter(|state| !state.is_seen_held());
        unanswered.map(|state| state.min_end())
    }

    pub(super) fn is_full(&mut self, max_waiters: usize) -> bool {
        // A search for each refused task would cost as much as the line is long.
        if self.waiting.len() >= max_waiters && self.gone > 0 {
            self.sweep();
        }
        self.waiting.len() >= max_waiters
    }

    /// A second guard for a request whose owner holds the lock.
    pub(super) fn enter(&self, request: &AcquireRequest) -> Result<Option<LockGuard>> {
        let owner = request.owner();
        let same = |holder: &&LocalHolder| owner.is_some() && owner == holder.owner.as_ref();
        let Some(holder) = self.holder.as_ref().filter(same) else {
            return Ok(None);
        };
        let guard = LockGuard::reentered(&holder.hold);
        if guard.is_none() && !holder.hold.is_exclusive() && holder.hold.is_in_time() {
            // In line the owner would wait for itself.
            let message = "the owner has made its lock a shared one";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(guard)
    }

    pub(super) fn join(
        &mut self,
        request: AcquireRequest,
        end: LineEnd,
    ) -> oneshot::Receiver<Wakeup> {
        let (wakeup, receiver) = oneshot::channel();
        let waiter = LocalWaiter { request, wakeup };
        waiter.owner().inspect(|owner| owner.enter_queue());
        match end {
            LineEnd::Front => self.waiting.push_front(waiter),
            LineEnd::Back => self.waiting.push_back(waiter),
        }
        receiver
    }

    /// Removes the waiters whose owner holds the lock, with a guard for each; they need not wait for themselves.
    pub(super) fn joining(&mut self) -> Vec<(oneshot::Sender<Wakeup>, LockGuard)> {
        let Some(LocalHolder { hold, owner }) = &self.holder else {
            return Vec::new();
        };
        let Some(owner) = owner.as_ref().filter(|owner| owner.is_queued()) else {
            return Vec::new();
        };
        let mut joining = Vec::new();
        for waiter in std::mem::take(&mut self.waiting) {
            let same = waiter.owner() == Some(owner) && !waiter.wakeup.is_closed();
            match same.then(|| LockGuard::reentered(hold)).flatten() {
                Some(guard) => {
                    owner.leave_queue();
                    joining.push((waiter.wakeup, guard));
                }
                None => self.waiting.push_back(waiter),
            }
        }
        joining
    }

    /// A waiter gave up. The line is swept once half of it is gone, so that the cost is constant.
    pub(super) fn note_departure(&mut self) {
        self.gone += 1;
        if self.gone * 2 > self.waiting.len() {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        self.waiting.retain(|waiter| {
            let gone = waiter.wakeup.is_closed();
            waiter.owner().filter(|_| gone).inspect(|o| o.leave_queue());
            !gone
        });
        self.gone = 0;
    }

    /// Whether the current holder must release to the server instead of handing over.
    fn is_last(&self) -> bool {
        self.holder.is_none() || self.handover_run.is_last
    }

    /// The next waiter that is alive and may take this lease from another task of this process.
    pub(super) fn successor(&mut self, hold: &HeldLease) -> Option<LocalWaiter> {
        if self.handover_run.is_last {
            return None;
        }
        let head = self.head()?;
        // No renewal makes a lease shorter: one with a shorter ttl would outlast the crash of its holder by
        // what its predecessor asked for.
        if head.request.ttl() != hold.timing.ttl() || !head.request.takes_hand_overs() {
            return None;
        }
        if !hold.suffices_for(&head.request) {
            return None;
        }
        // A lease without renewal would reach its holder half expired.
        (head.request.renewal() == Renewal::Automatic).then(|| self.pop())?
    }

    pub(super) fn put_back(&mut self, waiter: LocalWaiter) {
        // It may have left while it was not in `waiting`, and a sweep has reset the count since.
        self.gone += usize::from(waiter.wakeup.is_closed());
        waiter.owner().inspect(|owner| owner.enter_queue());
        self.waiting.push_front(waiter);
    }

    fn pop(&mut self) -> Option<LocalWaiter> {
        let waiter = self.waiting.pop_front()?;
        waiter.owner().inspect(|owner| owner.leave_queue());
        Some(waiter)
    }

    /// The waiter that has to go to the server now, if any: when there is no local holder, or when
    /// the local holder will release to the server. It takes over what the previous contender
    /// `left`, if it can: with another ttl, the lease would be renewed to that, and the server knows the
    /// attempt by the label of the one that began it.
    pub(super) fn promote(&mut self, left: Vacancy<'_>) -> Option<NextContender> {
        if self.contending.is_some() || !self.is_last() {
            return None;
        }
        self.head()?;
        let LocalWaiter { request, wakeup } = self.pop()?;
        let state = match left {
            Vacancy::Attempt(state) if state.ttl == request.ttl() && request.takes_hand_overs() => {
                Arc::clone(state)
            }
            Vacancy::Attempt(state) => Arc::new(state.anew(request.ttl())),
            Vacancy::Lock => Arc::new(AttemptState::new(request.ttl(), true)),
            Vacancy::Nothing => Arc::new(AttemptState::new(request.ttl(), false)),
        };
        self.contending = Some(Arc::clone(&state));
        Some(NextContender { wakeup, state })
    }

    fn head(&mut self) -> Option<&LocalWaiter> {
        while self
            .waiting
            .front()
            .is_some_and(|waiter| waiter.wakeup.is_closed())
        {
            self.pop();
        }
        self.waiting.front()
    }

    /// Whether a request that does not wait has to give up.
    pub(super) fn refuses(&self, request: &AcquireRequest) -> bool {
        !request.wait().waits() && !self.is_idle()
    }
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use super::*;
    use crate::key::LockKey;

    #[test]
    fn a_full_queue_is_searched_once_a_waiter_has_left() {
        let mut queue = KeyQueue::default();
        let request = AcquireRequest::new(LockKey::new("k").unwrap());
        let mut join = || queue.join(request.clone(), LineEnd::Back);
        let [first, _second, _third] = [join(), join(), join()];
        drop(first);
        assert!(queue.is_full(3), "nothing says yet that one has left");
        queue.note_departure();
        assert!(!queue.is_full(3));
        assert_eq!(queue.waiting.len(), 2);
    }
}
