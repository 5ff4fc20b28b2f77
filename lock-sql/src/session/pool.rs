use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::Engine;
use tokio::sync::{Mutex as Turn, Notify, oneshot};
use tokio::time::Instant;

use super::actor;
use super::args::Args;
use super::context::SessionContext;
use super::handle::{Command, Handle};
use super::lease::ended;
use crate::error::Failure;

/// The sessions of this lock service, and their reservations.
pub(crate) struct SessionPool {
    pub(crate) context: Arc<SessionContext>,
    state: Mutex<State>,
    /// When records of ended sessions were last deleted.
    swept: Mutex<Instant>,
    /// A reservation has ended, or a session is new or gone.
    changed: Notify,
    /// Requests for an exclusive session queue here. Without the queue, a caller that returns a
    /// session and asks again at once would starve the others.
    turn: Turn<()>,
}

#[derive(Default)]
struct State {
    sessions: Vec<Entry>,
    opening: usize,
    /// Why the server refuses sessions, and until when not to retry.
    refusal: Option<(Instant, Failure)>,
}

struct Entry {
    session: Arc<Handle>,
    /// What is taken there, or about to be. A database would let a session take a lock twice.
    keys: HashSet<LockKey>,
    /// A request waits there, and blocks the session until it ends.
    alone: bool,
}

impl SessionPool {
    pub(crate) fn new(context: Arc<SessionContext>) -> Arc<Self> {
        Arc::new(Self {
            context,
            state: Mutex::default(),
            swept: Mutex::new(Instant::now()),
            changed: Notify::new(),
            turn: Turn::default(),
        })
    }

    /// Reserves a session for one key. If all sessions are in use, waits for one; requests for a
    /// session of their own (`alone`) are served in order of arrival.
    pub(crate) async fn reservation(
        self: &Arc<Self>,
        key: &LockKey,
        alone: bool,
    ) -> Result<Reservation, Failure> {
        loop {
            // Requests that can share a session rarely wait, and never behind exclusive ones.
            let turn = match alone {
                true => Some(self.turn.lock().await),
                false => None,
            };
            let opened = loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some(reservation) = self.pick(key, alone) {
                    return Ok(reservation);
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

    fn pick(self: &Arc<Self>, key: &LockKey, alone: bool) -> Option<Reservation> {
        let mut state = self.lock();
        let fits = |entry: &Entry| {
            let is_free = entry.keys.is_empty() || !alone && !entry.keys.contains(key);
            is_free && !entry.alone && !entry.session.is_over()
        };
        // The fullest one, so that others become idle; among those, the last one.
        let entry = state
            .sessions
            .iter_mut()
            .filter(|entry| fits(entry))
            .max_by_key(|entry| entry.keys.len())?;
        entry.keys.insert(key.clone());
        entry.alone = alone;
        Some(Reservation {
            pool: Arc::clone(self),
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
            if state.sessions.len() + state.opening >= self.context.connections {
                return None;
            }
            state.opening += 1;
        }
        let opening = Opening(Arc::clone(self));
        self.context.engine.spawn_service(async move {
            let pool = Arc::clone(&opening.0);
            let result = match actor::open(&pool).await {
                Ok((session, actor)) => {
                    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
                    sessions.retain(|session| session.strong_count() > 0);
                    sessions.push(Arc::downgrade(&session));
                    drop(sessions);
                    pool.lock().sessions.push(Entry {
                        session,
                        keys: HashSet::new(),
                        alone: false,
                    });
                    pool.context.engine.spawn_service(actor);
                    Ok(())
                }
                Err(failure) => {
                    if failure.is_restart() {
                        let until = Instant::now() + RETRY_INTERVAL;
                        pool.lock().refusal = Some((until, failure.clone()));
                    }
                    Err(failure)
                }
            };
            drop(opening);
            drop(reply.send(result));
        });
        Some(opened)
    }

    /// A session ends; it takes no more reservations.
    pub(crate) fn remove(&self, session: &Handle) {
        let removed: Vec<_> = {
            let mut state = self.lock();
            let (removed, left) = std::mem::take(&mut state.sessions)
                .into_iter()
                .partition(|entry| entry.session.id == session.id);
            state.sessions = left;
            removed
        };
        // Outside of the mutex: it may be the last one that knows the session.
        drop(removed);
        self.changed.notify_waiters();
    }

    /// Removes a session without reservations; false if it has one.
    pub(crate) fn retire(&self, session: &Handle) -> bool {
        let retired = {
            let mut state = self.lock();
            let at = state
                .sessions
                .iter()
                .position(|entry| entry.session.id == session.id && entry.keys.is_empty());
            at.map(|at| state.sessions.swap_remove(at))
        };
        retired.is_some()
    }

    /// Ends the sessions without reservations, so that the server keeps no record of them.
    pub(crate) async fn retire_idle(&self) {
        let idle: Vec<_> = {
            let mut state = self.lock();
            let (idle, left) = std::mem::take(&mut state.sessions)
                .into_iter()
                .partition(|entry| entry.keys.is_empty());
            state.sessions = left;
            idle
        };
        // All commands are sent before the first reply: the caller may stop waiting.
        let report: Vec<_> = idle
            .into_iter()
            .map(|Entry { session, .. }| {
                let (reply, retired) = oneshot::channel();
                drop(session.commands.send(Command::Retire { reply }));
                retired
            })
            .collect();
        for retired in report {
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
        let context = Arc::clone(&self.context);
        self.context.engine.spawn_service(async move {
            let sql = &context.statements.start.sweep;
            if let Err(failure) = context
                .control_pool
                .message(sql, Args::new().into_vec())
                .await
            {
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
        let sessions = state.sessions.iter().map(|entry| &entry.session);
        sessions.map(Arc::clone).collect()
    }

    /// How many sessions there are.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.sessions.len() + state.opening
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SessionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPool")
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

/// How long an administrative request waits for the records of its own process.
const RECORDING: Duration = Duration::from_secs(1);

/// A session that is being opened; ends with the attempt, also when a runtime takes that away.
struct Opening(Arc<SessionPool>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.lock().opening -= 1;
        self.0.changed.notify_waiters();
    }
}

/// A reservation of a session, for one key.
pub(crate) struct Reservation {
    pool: Arc<SessionPool>,
    pub(crate) session: Arc<Handle>,
    key: LockKey,
}

impl Reservation {
    pub(super) fn engine(&self) -> &Engine {
        &self.pool.context.engine
    }

    /// The wait is over: the session can take other locks beside this one.
    pub(crate) fn settle(&self) {
        self.change(|entry| entry.alone = false);
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        let mut state = self.pool.lock();
        let entry = state
            .sessions
            .iter_mut()
            .find(|entry| entry.session.id == self.session.id);
        entry.map(change);
        drop(state);
        self.pool.changed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.change(|entry| {
            entry.keys.remove(&self.key);
            entry.alone = false;
        });
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Pause between two questions to a server that has to get older; its clients may delete their records
/// meanwhile.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Interval between two searches for records of ended sessions.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
