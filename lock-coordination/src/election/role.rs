//! Whether this process leads: each term ends on the thread that notices its loss first.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use polylock_core::engine::isolated;
use polylock_core::{LockGuard, LostReason, LostSignal};
use tokio::sync::watch;

use super::Election;
use crate::observer::{CoordinationEvent, CoordinationObserver, emit};

/// The role of one candidate.
#[derive(Default)]
pub(super) struct Role {
    terms: watch::Sender<Terms>,
}

/// Terms by their numbers.
#[derive(Default)]
struct Terms {
    last: u64,
    current: Option<CurrentTerm>,
}

struct CurrentTerm {
    number: u64,
    lost: LostSignal,
    /// Who was told of its beginning; clones of an election may have others.
    observer: Option<Arc<dyn CoordinationObserver>>,
}

impl Terms {
    fn number(&self) -> Option<u64> {
        self.current.as_ref().map(|current| current.number)
    }

    fn is_current(&self, term: u64) -> bool {
        self.number() == Some(term)
    }
}

impl Role {
    /// Whether there is a term, whatever the clock says.
    pub(super) fn has_term(&self) -> bool {
        self.terms.borrow().current.is_some()
    }

    /// Whether there is a term, whose lock is held by the clock of this moment.
    pub(super) fn leads(&self) -> bool {
        let lost = {
            let terms = self.terms.borrow();
            terms.current.as_ref().map(|current| current.lost.clone())
        };
        // A loss that is noticed here ends the term, which must not be borrowed then.
        lost.is_some_and(|lost| lost.reason().is_none())
    }

    pub(super) fn is_current(&self, term: u64) -> bool {
        self.terms.borrow().is_current(term)
    }

    /// Waits until there is a term whose lock is held.
    pub(super) async fn started(&self) {
        let mut terms = self.terms.subscribe();
        loop {
            wait_for(&mut terms, |terms| terms.current.is_some()).await;
            let number = terms.borrow().number();
            if self.leads() {
                return;
            }
            // The lease has ended before its loss is watched. A clone may be elected next.
            wait_for(&mut terms, |terms| terms.number() != number).await;
        }
    }

    /// Waits until there is no term.
    pub(super) async fn stopped(&self) {
        let mut terms = self.terms.subscribe();
        wait_for(&mut terms, |terms| terms.current.is_none()).await;
    }

    /// Waits until the term has ended.
    pub(super) async fn ended(&self, term: u64) {
        let mut terms = self.terms.subscribe();
        wait_for(&mut terms, |terms| !terms.is_current(term)).await;
    }
}

/// For terms whose sender lives as long as the caller.
async fn wait_for(terms: &mut watch::Receiver<Terms>, state: impl FnMut(&Terms) -> bool + Send) {
    drop(isolated(terms.wait_for(state)).await);
}

/// One term of a candidate; dropped, it has ended.
pub(super) struct ActiveTerm {
    state: Arc<TermState>,
    /// Wakes [`TermState`] at the loss, and is kept for that.
    _loss: Mutex<Pin<Box<dyn Future<Output = LostReason> + Send>>>,
}

struct TermState {
    election: Election,
    number: u64,
}

impl ActiveTerm {
    pub(super) fn begin(election: &Election, guard: &LockGuard) -> Self {
        let lost = guard.lost();
        let (mut number, mut former) = (0, None);
        election.role.terms.send_modify(|terms| {
            terms.last += 1;
            number = terms.last;
            former = terms.current.replace(CurrentTerm {
                number,
                lost: lost.clone(),
                observer: election.observer.clone(),
            });
        });
        let name = election.name();
        if let Some(former) = former {
            let ended = CoordinationEvent::Ended { election: name };
            emit(former.observer.as_ref(), &ended);
        }
        election.emit(&CoordinationEvent::Elected { election: name });
        let state = Arc::new(TermState {
            election: election.clone(),
            number,
        });
        // The loss calls `wake` on the thread that notices it, so that no task of the program has to
        // run. Unconstrained, because a task without budget would get `wake` at once, which ends
        // the term.
        let mut loss = Box::pin(tokio::task::unconstrained(lost.into_future()));
        let waker = Waker::from(Arc::clone(&state));
        if loss
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            state.end();
        }
        let _loss: Mutex<Pin<Box<dyn Future<Output = LostReason> + Send>>> = Mutex::new(loss);
        Self { state, _loss }
    }

    pub(super) fn number(&self) -> u64 {
        self.state.number
    }
}

impl TermState {
    /// Ends the term, unless it has ended already.
    fn end(&self) {
        let role = &self.election.role;
        let mut current = None;
        let has_ended = role.terms.send_if_modified(|terms| {
            let is_current = terms.is_current(self.number);
            if is_current {
                current = terms.current.take();
            }
            is_current
        });
        drop(current);
        if has_ended {
            let election = self.election.name();
            self.election.emit(&CoordinationEvent::Ended { election });
        }
    }
}

impl Wake for TermState {
    fn wake(self: Arc<Self>) {
        self.end();
    }
}

impl Drop for ActiveTerm {
    fn drop(&mut self) {
        self.state.end();
    }
}

impl fmt::Debug for ActiveTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActiveTerm({})", self.state.number)
    }
}
