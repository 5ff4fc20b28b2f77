use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lock_core::LockKey;
use tokio::sync::{Mutex as Turn, Notify, oneshot};
use tokio::time::Instant;

use super::actor;
use super::args::Args;
use super::handle::{Command, Handle};
use super::lease::ended;
use super::terms::Terms;
use crate::error::Failure;

/// The sessions of this lock service, and who has a place in which.
pub(crate) struct Roster {
    pub(crate) terms: Arc<Terms>,
    state: Mutex<State>,
    /// Since when no records of sessions that have ended were looked for.
    swept: Mutex<Instant>,
    /// A place is free, or a session is new or gone.
    changed: Notify,
    /// Of those who need a session alone, the one that looks for it; the others stand in line. Whoever
    /// gives a session back and asks again at once would keep those who wait out for ever.
    turn: Turn<()>,
}

#[derive(Default)]
struct State {
    seats: Vec<Entry>,
    opening: usize,
    /// What the server refuses sessions for, and until when it is not asked again.
    refusal: Option<(Instant, Failure)>,
}

struct Entry {
    session: Arc<Handle>,
    /// What is taken there, or about to be. A database would let a session take a lock twice.
    keys: HashSet<LockKey>,
    /// Somebody waits there, and nothing else can be done until it ends.
    alone: bool,
}

impl Roster {
    pub(crate) fn new(terms: Arc<Terms>) -> Arc<Self> {
        Arc::new(Self {
            terms,
            state: Mutex::default(),
            swept: Mutex::new(Instant::now()),
            changed: Notify::new(),
            turn: Turn::default(),
        })
    }

    /// A place in a session for one key; waits for one, if there are as many sessions as there may
    /// be, in the order of arrival if it has to be `alone`.
    pub(crate) async fn place(
        self: &Arc<Self>,
        key: &LockKey,
        alone: bool,
    ) -> Result<Place, Failure> {
        loop {
            // Who can be where others are seldom waits, and not for those who cannot.
            let turn = match alone {
                true => Some(self.turn.lock().await),
                false => None,
            };
            let opened = loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some(place) = self.pick(key, alone) {
                    return Ok(place);
                }
                match self.begin_to_open() {
                    Some(opened) => break opened,
                    None => changed.await,
                }
            };
            // The next one may open its own meanwhile.
            drop(turn);
            // Without a word when its runtime is gone.
            opened.await.unwrap_or_else(|_| Err(ended()))?;
        }
    }

    fn pick(self: &Arc<Self>, key: &LockKey, alone: bool) -> Option<Place> {
        let mut state = self.lock();
        let fits = |entry: &Entry| {
            let is_free = entry.keys.is_empty() || !alone && !entry.keys.contains(key);
            is_free && !entry.alone && !entry.session.is_over()
        };
        // The one with the most in it, so that others become idle; among those, the last one.
        let entry = state
            .seats
            .iter_mut()
            .filter(|entry| fits(entry))
            .max_by_key(|entry| entry.keys.len())?;
        entry.keys.insert(key.clone());
        entry.alone = alone;
        Some(Place {
            roster: Arc::clone(self),
            session: Arc::clone(&entry.session),
            key: key.clone(),
        })
    }

    /// Opens one more session, if there may be one.
    fn begin_to_open(self: &Arc<Self>) -> Option<oneshot::Receiver<Result<(), Failure>>> {
        let (reply, opened) = oneshot::channel();
        {
            let mut state = self.lock();
            if let Some((until, failure)) = &state.refusal {
                if Instant::now() < *until {
                    drop(reply.send(Err(failure.clone())));
                    return Some(opened);
                }
                state.refusal = None;
            }
            if state.seats.len() + state.opening >= self.terms.connections {
                return None;
            }
            state.opening += 1;
        }
        let opening = Opening(Arc::clone(self));
        self.terms.engine.spawn_service(async move {
            let roster = Arc::clone(&opening.0);
            let result = match actor::open(&roster).await {
                Ok((session, actor)) => {
                    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
                    sessions.retain(|session| session.strong_count() > 0);
                    sessions.push(Arc::downgrade(&session));
                    drop(sessions);
                    roster.lock().seats.push(Entry {
                        session,
                        keys: HashSet::new(),
                        alone: false,
                    });
                    roster.terms.engine.spawn_service(actor);
                    Ok(())
                }
                Err(failure) => {
                    if failure.is_restart() {
                        let until = Instant::now() + ASK_AGAIN;
                        roster.lock().refusal = Some((until, failure.clone()));
                    }
                    Err(failure)
                }
            };
            drop(opening);
            drop(reply.send(result));
        });
        Some(opened)
    }

    /// A session ends; nobody gets a place in it any more.
    pub(crate) fn remove(&self, session: &Handle) {
        let removed: Vec<_> = {
            let mut state = self.lock();
            let (removed, left) = std::mem::take(&mut state.seats)
                .into_iter()
                .partition(|entry| entry.session.id == session.id);
            state.seats = left;
            removed
        };
        // Outside of the mutex: it may be the last one that knows the session.
        drop(removed);
        self.changed.notify_waiters();
    }

    /// Lets a session go that nobody has a place in; false if somebody has.
    pub(crate) fn retire(&self, session: &Handle) -> bool {
        let retired = {
            let mut state = self.lock();
            let at = state
                .seats
                .iter()
                .position(|entry| entry.session.id == session.id && entry.keys.is_empty());
            at.map(|at| state.seats.swap_remove(at))
        };
        retired.is_some()
    }

    /// Ends the sessions that nobody has a place in, so that the server keeps no record of them.
    pub(crate) async fn retire_idle(&self) {
        let idle: Vec<_> = {
            let mut state = self.lock();
            let (idle, left) = std::mem::take(&mut state.seats)
                .into_iter()
                .partition(|entry| entry.keys.is_empty());
            state.seats = left;
            idle
        };
        // All of them are told before the first answer: the caller may stop waiting for it.
        let told: Vec<_> = idle
            .into_iter()
            .map(|Entry { session, .. }| {
                let (reply, retired) = oneshot::channel();
                drop(session.commands.send(Command::Retire { reply }));
                retired
            })
            .collect();
        for retired in told {
            // An error says that the session has ended by itself.
            let _ended = retired.await;
        }
    }

    /// Has the records of sessions deleted that have ended, if that was not done for a while.
    pub(crate) fn sweep_seldom(&self) {
        let is_due = self.last_swept().elapsed() >= SWEEP_EVERY;
        if is_due {
            self.sweep();
        }
    }

    /// Has the records of sessions deleted that have ended. Nothing waits for it.
    pub(crate) fn sweep(&self) {
        *self.last_swept() = Instant::now();
        let terms = Arc::clone(&self.terms);
        self.terms.engine.spawn_service(async move {
            let sql = &terms.texts.start.sweep;
            if let Err(failure) = terms.clerk.message(sql, Args::new().into_vec()).await {
                let error = lock_core::Error::from(failure);
                tracing::debug!(%error, "records of sessions that have ended stay where they are");
            }
        });
    }

    fn last_swept(&self) -> MutexGuard<'_, Instant> {
        self.swept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn sessions(&self) -> Vec<Arc<Handle>> {
        let state = self.lock();
        let sessions = state.seats.iter().map(|entry| &entry.session);
        sessions.map(Arc::clone).collect()
    }

    /// How many sessions there are.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.seats.len() + state.opening
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster")
            .field("sessions", &self.len())
            .finish_non_exhaustive()
    }
}

/// Has the holders in this process recorded: what it knows, it finds.
pub(super) async fn record_all() {
    let sessions = {
        let sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.clone()
    };
    let sessions = sessions.iter().filter_map(Weak::upgrade);
    let recorded: Vec<_> = sessions
        .filter(|session| session.has_holders())
        .map(|session| {
            let (reply, recorded) = oneshot::channel();
            drop(session.commands.send(Command::Record { reply }));
            recorded
        })
        .collect();
    let all = async {
        for recorded in recorded {
            // The end of the channel says that it is done.
            let _closed = recorded.await;
        }
    };
    drop(tokio::time::timeout(RECORDING, all).await);
}

/// The sessions of this process.
static SESSIONS: Mutex<Vec<Weak<Handle>>> = Mutex::new(Vec::new());

/// How long somebody who looks waits for the records of its own process.
const RECORDING: Duration = Duration::from_secs(1);

/// A session that is being opened; ends with the attempt, also when a runtime takes that away.
struct Opening(Arc<Roster>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.lock().opening -= 1;
        self.0.changed.notify_waiters();
    }
}

/// A place in a session, for one key.
pub(crate) struct Place {
    roster: Arc<Roster>,
    pub(crate) session: Arc<Handle>,
    key: LockKey,
}

impl Place {
    /// Nobody waits here any more: others may take other locks beside this one.
    pub(crate) fn settle(&self) {
        self.change(|entry| entry.alone = false);
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        let mut state = self.roster.lock();
        let entry = state
            .seats
            .iter_mut()
            .find(|entry| entry.session.id == self.session.id);
        entry.map(change);
        drop(state);
        self.roster.changed.notify_waiters();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.change(|entry| {
            entry.keys.remove(&self.key);
            entry.alone = false;
        });
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Pause between two questions to a server that has to get older; its clients may delete their records
/// meanwhile.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(500);

/// How often a process looks for records of sessions that have ended without deleting them.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
