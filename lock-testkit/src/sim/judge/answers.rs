use std::time::Duration;

use lock_core::{ErrorKind, Mode, Released, Wait};

use super::{Case, ViolationKind, is_of};
use crate::sim::log::{Answer, Operation};
use crate::sim::plan::SETTLING;

impl Case<'_> {
    /// Contention, errors and releases are what they are said to be, and nobody waits for nothing.
    pub(super) fn judge_answers(&mut self) {
        let book = self.book;
        for operation in &book.operations {
            match operation.answered {
                Some((at, Answer::Failed(ErrorKind::Contended))) => {
                    self.judge_contention(operation, at);
                }
                Some((at, Answer::Failed(kind))) => self.judge_error(operation, at, kind),
                _ => {}
            }
            if self.is_calm(operation.asked) {
                self.judge_waiting(operation);
                self.judge_release(operation);
            }
        }
    }

    /// Somebody else held the lock at some time of the wait, or asked for it in the same process.
    fn judge_contention(&mut self, operation: &Operation, at: Duration) {
        let own = |id| self.book.ids.get(id) == Some(&operation.number);
        let held = self.tenures.iter().any(|(tenure, from, until)| {
            let meets = *from <= at && *until >= operation.asked;
            is_of(tenure, operation) && meets && !own(&tenure.id)
        });
        if !held && !self.has_rival(operation, at) {
            let what = format!("#{} met nobody, {:?}", operation.number, operation.wait);
            self.found(ViolationKind::FalseContention, at, what);
        }
    }

    /// Whether another task of the process stood before this one in the local queue: it waited, or
    /// had a lock whose loss was not noticed yet.
    pub(super) fn has_rival(&self, operation: &Operation, at: Duration) -> bool {
        self.book.operations.iter().any(|other| {
            let local = other.process == operation.process && other.key == operation.key;
            let exclusive = other.mode == Mode::Exclusive && other.number != operation.number;
            local && exclusive && other.asked <= at && other.over() >= operation.asked
        })
    }

    fn judge_error(&mut self, operation: &Operation, at: Duration, kind: ErrorKind) {
        if kind != ErrorKind::Unavailable || self.is_calm(operation.asked) {
            let what = format!("#{} got {kind:?}", operation.number);
            self.found(ViolationKind::FalseError, at, what);
        }
    }

    /// While somebody waits, the lock is not free for long.
    fn judge_waiting(&mut self, operation: &Operation) {
        let Some((answered, _)) = operation.answered.filter(|_| operation.wait != Wait::Never)
        else {
            return;
        };
        let mut free_since = operation.asked;
        let mut longest = Duration::ZERO;
        // The store grants a key in the order of time, so that the tenures are sorted.
        for (_, from, until) in self.tenures.iter().filter(|(t, ..)| is_of(t, operation)) {
            if *until >= operation.asked && *from < answered {
                longest = longest.max(from.saturating_sub(free_since));
                free_since = free_since.max(*until);
            }
        }
        longest = longest.max(answered.saturating_sub(free_since));
        if longest > IDLE {
            let what = format!("#{} waited {longest:?} for a free lock", operation.number);
            self.found(ViolationKind::PassedOver, answered, what);
        }
    }

    /// A lock that was released is free, or has been handed over.
    fn judge_release(&mut self, operation: &Operation) {
        let clean = matches!(operation.released, Some((_, Ok(Released::Clean))));
        let Some((at, _)) = operation.released.filter(|_| clean && !operation.lingers) else {
            return;
        };
        let Some((tenure, _, until)) = self.tenure_of(operation) else {
            return;
        };
        let taken_over = self.book.operations.iter().any(|other| {
            let later = other.token > operation.token;
            is_of(tenure, other) && later && other.token <= Some(tenure.tokens.1)
        });
        if *until > at + IDLE && !taken_over {
            let what = format!("#{} is on the store until {until:?}", operation.number);
            self.found(ViolationKind::HeldAfterRelease, at, what);
        }
    }

    /// Whether the faults are over and their effects as well.
    fn is_calm(&self, at: Duration) -> bool {
        at >= self.world.plan.faults_end + SETTLING
    }
}

/// Longest time that a lock is free while somebody waits: a few beats or polls of a waiter.
const IDLE: Duration = Duration::from_millis(700);
