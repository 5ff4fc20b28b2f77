//! Whether this process leads, by the thread that notices an end first.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use polylock_core::{LostReason, LostSignal};
use tokio::sync::watch;

use super::Election;
use crate::observer::CoordinationEvent;

/// The role of one candidate.
#[derive(Default)]
pub(super) struct Role {
    leads: watch::Sender<bool>,
    terms: Mutex<Terms>,
}

/// Terms by their numbers.
#[derive(Default)]
struct Terms {
    last: u64,
    current: Option<u64>,
}

impl Role {
    pub(super) fn subscribe(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    fn terms(&self) -> MutexGuard<'_, Terms> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One term of a candidate; dropped, it has ended.
pub(super) struct Seat {
    seat: Arc<SeatInner>,
    /// Wakes [`SeatInner`] at the loss, and is kept for that.
    _loss: Mutex<Pin<Box<dyn Future<Output = LostReason> + Send>>>,
}

struct SeatInner {
    election: Election,
    term: u64,
}

impl Seat {
    pub(super) fn take(election: &Election, lost: LostSignal) -> Self {
        let mut terms = election.role.terms();
        terms.last += 1;
        let term = terms.last;
        let former = terms.current.replace(term);
        election.role.leads.send_replace(true);
        drop(terms);
        let name = election.name();
        if former.is_some() {
            election.emit(&CoordinationEvent::Ended { election: name });
        }
        election.emit(&CoordinationEvent::Elected { election: name });
        let election = election.clone();
        let seat = Arc::new(SeatInner { election, term });
        // Whoever signals the loss calls `wake`, on the thread of the engine, so that no task of the
        // program has to run. The budget of the task that polls it here would wake it as well.
        let mut loss = Box::pin(tokio::task::unconstrained(lost.into_future()));
        let waker = Waker::from(Arc::clone(&seat));
        if loss
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            seat.leave();
        }
        let _loss: Mutex<Pin<Box<dyn Future<Output = LostReason> + Send>>> = Mutex::new(loss);
        Self { seat, _loss }
    }
}

impl SeatInner {
    fn leave(&self) {
        let role = &self.election.role;
        let mut terms = role.terms();
        if terms.current != Some(self.term) {
            return;
        }
        terms.current = None;
        role.leads.send_replace(false);
        drop(terms);
        let election = self.election.name();
        self.election.emit(&CoordinationEvent::Ended { election });
    }
}

impl Wake for SeatInner {
    fn wake(self: Arc<Self>) {
        self.leave();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seat.leave();
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seat({})", self.seat.term)
    }
}
