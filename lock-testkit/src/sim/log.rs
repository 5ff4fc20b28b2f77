//! What happened in a history: one record for each operation, and every event as a line.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use polylock_core::engine::LeaseId;
use polylock_core::{AcquireRequest, ErrorKind, LockKey, LostReason, Released};

use super::fault::SimFault;
use crate::history::{HistoryEvent, What};
use crate::lock;

#[derive(Debug, Default)]
pub(crate) struct SimLog(Mutex<Book>);

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) operations: Vec<Operation>,
    pub(crate) faults: BTreeMap<SimFault, usize>,
    /// Times in which a process was paused or dead.
    pub(crate) pauses: Vec<(usize, Duration, Duration)>,
    /// When the process of an acquisition on the store tried to renew it.
    pub(crate) tries: BTreeMap<LeaseId, Vec<Duration>>,
    /// When it was tried to release one, and whether there was an answer.
    pub(crate) releases: BTreeMap<LeaseId, Vec<(Duration, bool)>>,
    /// Which operation an acquisition on the store was made for.
    pub(crate) ids: BTreeMap<LeaseId, usize>,
    /// The same for the checker, at times that grow from one event to the next.
    pub(crate) events: Vec<HistoryEvent>,
    pub(crate) lines: Vec<String>,
}

/// One acquisition and everything that followed from it. All times are true ones.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) number: usize,
    pub(crate) process: usize,
    pub(crate) request: AcquireRequest,
    pub(crate) asked: Duration,
    pub(crate) answered: Option<(Duration, AcquireOutcome)>,
    pub(crate) token: Option<u64>,
    /// The deadlines that the guard had, each with the expiry on the store at that time.
    pub(crate) validity: Vec<LoggedValidity>,
    /// When the holder saw `is_held` last.
    pub(crate) seen_held: Duration,
    pub(crate) lost: Option<(Duration, LostReason)>,
    /// When the holder released, dropped or abandoned the guard, or was killed.
    pub(crate) ended: Option<(Duration, GuardEnding)>,
    pub(crate) released: Option<(Duration, Result<Released, ErrorKind>)>,
    /// Whether the lock may stay taken after its release.
    pub(crate) lingers: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedValidity {
    pub(crate) at: Duration,
    pub(crate) until: Duration,
    pub(crate) expiry: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AcquireOutcome {
    Acquired,
    /// The future was dropped.
    Dropped,
    Failed(ErrorKind),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum GuardEnding {
    Abandoned,
    Dropped,
    Killed,
    Released,
}

impl SimLog {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.0)
    }

    pub(crate) fn fault(&self, fault: SimFault) {
        *self.book().faults.entry(fault).or_default() += 1;
    }
}

impl Book {
    pub(crate) fn note(&mut self, at: Duration, what: fmt::Arguments<'_>) {
        self.lines
            .push(format!("{:>10.3} {what}", at.as_secs_f64() * 1000.0));
    }

    /// Adds an event for the checker, which counts acquisitions from 1.
    pub(crate) fn event(&mut self, at: Duration, key: &LockKey, number: usize, what: What) {
        let at = nanos(at);
        // What happens at one moment of virtual time still happens one after the other.
        let at = self.events.last().map_or(at, |last| at.max(last.at + 1));
        let attempt = u64::try_from(number).unwrap_or(0) + 1;
        let mut event = HistoryEvent::new(at, key.as_str(), attempt, what);
        event.seq = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        self.events.push(event);
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Operation {
    /// The latest deadline that the guard had; `None` if there was none.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.validity.iter().map(|validity| validity.until).max()
    }

    /// Until when the guard was valid; `None` if there was none.
    pub(crate) fn valid_until(&self) -> Option<Duration> {
        let deadline = self.deadline()?.max(self.seen_held);
        let ended = self.ended.map(|(at, _)| at);
        let lost = self.lost.map(|(at, _)| at);
        Some(ended.into_iter().chain(lost).fold(deadline, Duration::min))
    }

    /// When its process knew that it neither waits for the lock nor holds it.
    pub(crate) fn over(&self) -> Duration {
        let over = match self.answered {
            Some((_, AcquireOutcome::Acquired)) => self.lost.map(|(at, _)| at),
            Some((at, _)) => Some(at),
            None => None,
        };
        let ended = self.ended.map(|(at, _)| at);
        over.into_iter().chain(ended).min().unwrap_or(Duration::MAX)
    }

    /// Whether it waits, holds or releases.
    pub(crate) fn is_open(&self) -> bool {
        let unanswered = self.answered.is_none();
        self.ended.is_none() && (unanswered || self.acquired_at().is_some())
    }

    pub(crate) fn acquired_at(&self) -> Option<Duration> {
        match self.answered {
            Some((at, AcquireOutcome::Acquired)) => Some(at),
            _ => None,
        }
    }
}

impl SimLog {
    /// Ends the operations of a process that dies.
    pub(crate) fn kill(&self, process: usize, at: Duration) {
        let mut book = self.book();
        book.note(at, format_args!("process {process} dies"));
        book.pauses.push((process, at, Duration::MAX));
        for operation in &mut book.operations {
            if operation.process == process && operation.ended.is_none() {
                operation.ended = Some((at, GuardEnding::Killed));
            }
        }
    }
}
