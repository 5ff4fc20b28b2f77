//! What happened in a history: one record for each operation, and every event as a line.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use polylock_core::engine::LeaseId;
use polylock_core::{ErrorKind, LockKey, LostReason, Mode, Released, Wait};

use super::fault::Fault;
use crate::history::{Event, What};
use crate::lock;

#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Book>);

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) operations: Vec<Operation>,
    pub(crate) writes: Vec<Write>,
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// Times in which a process was paused or dead.
    pub(crate) pauses: Vec<(usize, Duration, Duration)>,
    pub(crate) renewals: u64,
    /// When the process of an acquisition on the store tried to renew it.
    pub(crate) tries: BTreeMap<LeaseId, Vec<Duration>>,
    /// When it was tried to release one, and whether there was an answer.
    pub(crate) releases: BTreeMap<LeaseId, Vec<(Duration, bool)>>,
    /// Which operation an acquisition on the store was made for.
    pub(crate) ids: BTreeMap<LeaseId, usize>,
    /// The same for the checker, at times that grow from one event to the next.
    pub(crate) events: Vec<Event>,
    pub(crate) lines: Vec<String>,
}

/// One acquisition and everything that followed from it. All times are true ones.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) number: usize,
    pub(crate) process: usize,
    pub(crate) key: LockKey,
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    pub(crate) ttl: Duration,
    /// Whether the engine has to renew it.
    pub(crate) automatic: bool,
    pub(crate) asked: Duration,
    pub(crate) answered: Option<(Duration, Answer)>,
    pub(crate) token: Option<u64>,
    /// The deadlines that the guard had, each with the expiry on the store at that time.
    pub(crate) validity: Vec<Validity>,
    /// Looks of the holder at `is_held`, the first one when the guard was returned.
    pub(crate) looks: Vec<(Duration, bool)>,
    pub(crate) lost: Option<(Duration, LostReason)>,
    /// When the holder released, dropped or abandoned the guard, or was killed.
    pub(crate) ended: Option<(Duration, Ending)>,
    pub(crate) released: Option<(Duration, Result<Released, ErrorKind>)>,
    /// Whether the lock may stay taken after its release.
    pub(crate) lingers: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Validity {
    pub(crate) at: Duration,
    pub(crate) until: Duration,
    pub(crate) expiry: Option<Duration>,
}

/// How an acquisition ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Acquired,
    /// The future was dropped.
    Dropped,
    Failed(ErrorKind),
}

/// How a guard ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    Abandoned,
    Dropped,
    Killed,
    Released,
}

/// A write that reached the resource.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) operation: usize,
    pub(crate) key: LockKey,
    pub(crate) at: Duration,
    pub(crate) kind: WriteKind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WriteKind {
    /// To the fenced register.
    Accepted { token: u64 },
    /// To the unfenced counter: what it was and is.
    Counted { from: u64, to: u64 },
    /// By the fenced register, because of its token.
    Refused { token: u64 },
}

impl Log {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.0)
    }

    pub(crate) fn fault(&self, fault: Fault) {
        *self.book().faults.entry(fault).or_default() += 1;
    }

    /// Writes a line.
    pub(crate) fn note(&self, at: Duration, what: fmt::Arguments<'_>) {
        self.book().note(at, what);
    }

    /// Changes the record of an operation, and writes a line about it.
    pub(crate) fn change(
        &self,
        number: usize,
        at: Duration,
        what: fmt::Arguments<'_>,
        event: Option<What>,
        change: impl FnOnce(&mut Operation),
    ) {
        let mut book = self.book();
        let Some(operation) = book.operations.get_mut(number) else {
            return;
        };
        // The dead do nothing, although their destructors run.
        if operation
            .ended
            .is_some_and(|(_, how)| how == Ending::Killed)
        {
            return;
        }
        change(operation);
        let (process, key) = (operation.process, operation.key.clone());
        book.note(
            at,
            format_args!("process {process} {key} #{number}: {what}"),
        );
        if let Some(event) = event {
            book.event(at, &key, Some(number), event);
        }
    }
}

impl Book {
    pub(crate) fn note(&mut self, at: Duration, what: fmt::Arguments<'_>) {
        self.lines
            .push(format!("{:>10.3} {what}", at.as_secs_f64() * 1000.0));
    }

    /// Adds an event for the checker, which counts acquisitions from 1.
    pub(crate) fn event(&mut self, at: Duration, key: &LockKey, of: Option<usize>, what: What) {
        let at = nanos(at);
        // What happens at one moment of virtual time still happens one after the other.
        let at = self.events.last().map_or(at, |last| at.max(last.at + 1));
        let attempt = of.map_or(0, |number| u64::try_from(number).unwrap_or(0) + 1);
        let mut event = Event::new(at, key.as_str(), attempt, what);
        event.seq = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        self.events.push(event);
    }

    /// A number that is the same for the same history.
    pub(crate) fn digest(&self) -> u64 {
        // FNV-1a, which is the same everywhere and for ever.
        self.lines
            .iter()
            .flat_map(|line| line.bytes())
            .fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
            })
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Operation {
    /// Until when the guard was valid; `None` if there was none.
    pub(crate) fn valid_until(&self) -> Option<Duration> {
        let deadline = self.validity.iter().map(|validity| validity.until).max()?;
        let seen = self
            .looks
            .iter()
            .filter(|(_, held)| *held)
            .map(|(at, _)| *at)
            .max();
        let deadline = deadline.max(seen.unwrap_or_default());
        let ended = self.ended.map(|(at, _)| at);
        let lost = self.lost.map(|(at, _)| at);
        Some(ended.into_iter().chain(lost).fold(deadline, Duration::min))
    }

    /// When its process knew that it neither waits for the lock nor holds it.
    pub(crate) fn over(&self) -> Duration {
        let over = match self.answered {
            Some((_, Answer::Acquired)) => self.lost.map(|(at, _)| at),
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
            Some((at, Answer::Acquired)) => Some(at),
            _ => None,
        }
    }
}

impl Log {
    /// Ends the operations of a process that dies.
    pub(crate) fn kill(&self, process: usize, at: Duration) {
        let mut book = self.book();
        book.note(at, format_args!("process {process} dies"));
        book.pauses.push((process, at, Duration::MAX));
        for operation in &mut book.operations {
            if operation.process == process && operation.ended.is_none() {
                operation.ended = Some((at, Ending::Killed));
            }
        }
    }
}
