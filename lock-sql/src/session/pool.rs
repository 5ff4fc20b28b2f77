//! The sessions of a lock service, and which request uses which of them.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use polylock_core::engine::{Engine, Mutex};
use polylock_core::{AcquireRequest, LockKey};
use tokio::sync::{Mutex as Turn, Notify, oneshot};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::actor;
use super::args::Args;
use super::context::SessionContext;
use super::handle::{SessionCommand, SessionHandle, ended};
use super::record;
use crate::budget::{RETRY_INTERVAL, SqlBudget};
use crate::config::SqlMode;
use crate::error::SqlFailure;
use crate::on_drop::OnDrop;

/// The sessions of this lock service, and their reservations.
pub(crate) struct SessionPool {
    pub(crate) context: Arc<SessionContext>,
    state: Mutex<SessionPoolState>,
    /// When records of ended sessions were last deleted.
    swept: Mutex<Instant>,
    /// A reservation has ended, or a session is new or gone.
    changed: Notify,
    /// Requests for an exclusive session queue here. Without the queue, a caller that returns a session
    /// and immediately requests another would starve the others.
    turn: Turn<()>,
    /// For the layers above: [`why_full`](Self::why_full).
    why_full: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

#[derive(Default)]
struct SessionPoolState {
    sessions: Vec<SessionEntry>,
    opening: usize,
    /// Requests that will share what is being opened, and its failure.
    subscribers: Vec<oneshot::Sender<Result<(), SqlFailure>>>,
    /// How many requests wait for a session of their own to become idle.
    waiting: usize,
    /// Why the server refuses sessions, and the time of the next retry.
    refusal: Option<(Instant, SqlFailure)>,
}

struct SessionEntry {
    session: Arc<SessionHandle>,
    /// Keys that are or will be locked there. A database would grant a session a lock twice.
    keys: HashSet<LockKey>,
    /// How many of them are being acquired: each keeps the session busy for a round trip.
    attempts: usize,
    /// A request waits there, and blocks the session until the wait ends.
    alone: bool,
}

impl SessionPoolState {
    /// Whether a session remains for attempts if a waiter takes one, or may be opened for them.
    fn can_spare(&self, connections: usize) -> bool {
        let usable = self.sessions.iter().filter(|entry| entry.is_usable());
        self.sessions.len() + self.opening < connections || usable.count() + self.opening > 1
    }
}

impl SessionEntry {
    fn is_usable(&self) -> bool {
        !self.alone && !self.session.is_over()
    }

    fn is_shared(&self) -> bool {
        !self.alone && !self.keys.is_empty()
    }
}

impl SessionPool {
    pub(crate) fn new(context: Arc<SessionContext>) -> Arc<Self> {
        Arc::new_cyclic(|pool: &Weak<Self>| {
            let pool = Weak::clone(pool);
            Self {
                context,
                state: Mutex::default(),
                swept: Mutex::new(Instant::now()),
                changed: Notify::new(),
                turn: Turn::default(),
                why_full: Arc::new(move || pool.upgrade()?.why_full()),
            }
        })
    }

    /// Reserves a session for the key of a request. If all sessions are in use, waits for one; requests for
    /// a session of their own (`alone`) are served in order of arrival.
    pub(crate) async fn reservation(
        self: &Arc<Self>,
        request: &AcquireRequest,
        budget: &SqlBudget,
        alone: bool,
    ) -> Result<Reservation, SqlFailure> {
        let key = request.key();
        loop {
            // Requests that can share a session rarely wait, and never behind exclusive ones.
            let turn = match alone {
                false => None,
                true => Some(match self.turn.try_lock() {
                    Ok(turn) => turn,
                    Err(_) => self.while_full(request, budget, self.turn.lock()).await,
                }),
            };
            let opened = loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                let picked = match alone {
                    true => self.pick_idle(key),
                    false => self.pick_shared(key),
                };
                if let Some(reservation) = picked {
                    return Ok(reservation);
                }
                match self.begin_to_open(alone) {
                    Some(opened) => break opened,
                    None => {
                        let _waiting = alone.then(|| self.count_waiting());
                        self.while_full(request, budget, changed).await;
                    }
                }
            };
            // The next one may open its own meanwhile.
            drop(turn);
            // Without a word when its runtime is gone.
            opened.await.unwrap_or_else(|_| Err(ended()))?;
        }
    }

    /// Waits until a session may be free. Until then it is known that the server was not asked.
    async fn while_full<T>(
        &self,
        request: &AcquireRequest,
        budget: &SqlBudget,
        wait: impl Future<Output = T>,
    ) -> T {
        budget.mark_full(true);
        request.mark_full(Some(Arc::clone(&self.why_full)));
        let _waiting = OnDrop(|| {
            request.mark_full(None);
            budget.mark_full(false);
        });
        wait.await
    }

    /// Counts a request that waits for a session of its own to become idle.
    fn count_waiting(&self) -> OnDrop<impl FnMut()> {
        self.state.lock().waiting += 1;
        OnDrop(move || self.state.lock().waiting -= 1)
    }

    /// Why requests wait in this process, if the server has opened as many sessions as it may.
    pub(crate) fn why_full(&self) -> Option<String> {
        let connections = self.context.connections;
        let is_open = |entry: &&SessionEntry| !entry.session.is_over();
        let open = self.state.lock().sessions.iter().filter(is_open).count();
        (open >= connections).then(|| {
            format!(
                "all {connections} connections are in use, each for a lock or a waiter; \
                 connections=N allows more"
            )
        })
    }

    /// A session without locks, for a request that may wait there. If requests share sessions, one
    /// session is kept for attempts.
    fn pick_idle(self: &Arc<Self>, key: &LockKey) -> Option<Reservation> {
        let mut state = self.state.lock();
        if self.context.mode == SqlMode::Advisory && !state.can_spare(self.context.connections) {
            return None;
        }
        let is_idle = |entry: &&mut SessionEntry| entry.is_usable() && entry.keys.is_empty();
        let entry = state.sessions.iter_mut().rfind(is_idle)?;
        entry.alone = true;
        Some(self.reserve(entry, key))
    }

    /// A session for a request that does not wait there: the fullest one, so that others become idle. If
    /// attempts queue up in it, another one, as long as enough sessions remain for waiters and no
    /// request waits for an idle one.
    fn pick_shared(self: &Arc<Self>, key: &LockKey) -> Option<Reservation> {
        let mut state = self.state.lock();
        let shared = state.sessions.iter().filter(|e| e.is_shared()).count();
        let is_wanted = state.waiting > 0;
        let may_spread = !is_wanted && shared < self.context.connections / SHARED_FRACTION;
        let may_open = may_spread && state.opening == 0;
        let rank = |entry: &&mut SessionEntry| match entry.is_shared() {
            true if is_wanted || entry.attempts < MAX_ATTEMPTS => (3, entry.keys.len()),
            false if may_spread => (2, 0),
            true => (1, usize::MAX - entry.attempts),
            false => (0, 0),
        };
        let entry = state
            .sessions
            .iter_mut()
            .filter(|entry| entry.is_usable() && !entry.keys.contains(key))
            .max_by_key(rank)?;
        let opens = may_open && entry.attempts >= MAX_ATTEMPTS;
        let reservation = self.reserve(entry, key);
        drop(state);
        if opens {
            // The next request finds it.
            drop(self.begin_to_open(false));
        }
        Some(reservation)
    }

    fn reserve(self: &Arc<Self>, entry: &mut SessionEntry, key: &LockKey) -> Reservation {
        entry.keys.insert(key.clone());
        entry.attempts += 1;
        Reservation {
            pool: Arc::clone(self),
            session: Arc::clone(&entry.session),
            key: key.clone(),
            is_attempt: true,
        }
    }

    /// Opens another session, if the limit allows it. A request that can share it waits for the one
    /// being opened.
    fn begin_to_open(
        self: &Arc<Self>,
        alone: bool,
    ) -> Option<oneshot::Receiver<Result<(), SqlFailure>>> {
        let (reply, opened) = oneshot::channel();
        {
            let mut state = self.state.lock();
            if let Some((until, failure)) = &state.refusal {
                if Instant::now() < *until {
                    drop(reply.send(Err(failure.clone())));
                    return Some(opened);
                }
                state.refusal = None;
            }
            if state.opening > 0 && !alone {
                state.subscribers.push(reply);
                return Some(opened);
            }
            if state.sessions.len() + state.opening >= self.context.connections {
                return None;
            }
            state.opening += 1;
        }
        let mut opening = Opening {
            pool: Arc::clone(self),
            is_counted: true,
            reply: Some(reply),
            result: None,
        };
        self.context.engine.spawn_service(async move {
            let pool = Arc::clone(&opening.pool);
            let result = pool.open(&mut opening).await;
            opening.end(result);
        });
        Some(opened)
    }

    async fn open(self: &Arc<Self>, opening: &mut Opening) -> Result<(), SqlFailure> {
        match actor::connect(self).await {
            Ok(actor) => {
                let session = Arc::clone(&actor.handle);
                let mut sessions = SESSIONS.lock();
                sessions.retain(|session| session.strong_count() > 0);
                sessions.push(Arc::downgrade(&session));
                drop(sessions);
                {
                    let mut state = self.state.lock();
                    // In one step: a waiter that counts it twice would take the session that is kept for
                    // attempts.
                    opening.end_count(&mut state);
                    state.sessions.push(SessionEntry {
                        session,
                        keys: HashSet::new(),
                        attempts: 0,
                        alone: false,
                    });
                }
                // A span of its own, because any caller may poll it.
                let span = tracing::error_span!(parent: None, "sql_session");
                self.context
                    .engine
                    .spawn_inline(actor.serve().instrument(span));
                Ok(())
            }
            Err(failure) => {
                // Its clients may delete their records meanwhile.
                if failure.is_restart() {
                    let until = Instant::now() + RETRY_INTERVAL;
                    self.state.lock().refusal = Some((until, failure.clone()));
                }
                Err(failure)
            }
        }
    }

    /// A session ends; it takes no more reservations.
    pub(crate) fn remove(&self, session: &SessionHandle) {
        drop(self.take_out(|entry| entry.session.id == session.id));
        self.changed.notify_waiters();
    }

    /// Removes a session without reservations; false if it has one.
    pub(crate) fn retire(&self, session: &SessionHandle) -> bool {
        let is_it = |entry: &SessionEntry| entry.session.id == session.id && entry.keys.is_empty();
        let retired = self.take_out(is_it);
        // Another one may be opened in its place.
        self.changed.notify_waiters();
        !retired.is_empty()
    }

    /// Ends the sessions without reservations, so that the server keeps no record of them.
    pub(crate) async fn retire_idle(&self) {
        let idle = self.take_out(|entry| entry.keys.is_empty());
        // All commands are sent before the first reply: the caller may stop waiting.
        let retire =
            |entry: SessionEntry| entry.session.send(|reply| SessionCommand::Retire { reply });
        let report: Vec<_> = idle.into_iter().map(retire).collect();
        for retired in report {
            // An error says that the session has ended by itself.
            let _ended = retired.await;
        }
    }

    /// Takes sessions out, for the caller to drop outside of the mutex: it may be the last that knows them.
    fn take_out(&self, is_it: impl Fn(&SessionEntry) -> bool) -> Vec<SessionEntry> {
        let mut state = self.state.lock();
        state
            .sessions
            .extract_if(.., |entry| is_it(entry))
            .collect()
    }

    /// Deletes the records of ended sessions, if the last deletion is a while ago.
    pub(crate) fn sweep_seldom(&self) {
        let is_due = self.swept.lock().elapsed() >= SWEEP_EVERY;
        if is_due {
            self.sweep();
        }
    }

    /// Deletes the records of ended sessions in the background, and then those of their readers.
    pub(crate) fn sweep(&self) {
        *self.swept.lock() = Instant::now();
        let context = Arc::clone(&self.context);
        self.context.engine.spawn_service(async move {
            let sql = &context.statements.start.sweep;
            if let Err(failure) = context.control(sql, Args::new()).await {
                tracing::debug!(cause = %failure.cause, "records of sessions that have ended stay where they are");
            }
            if let Err(failure) = record::forget_dead_readers(&context).await {
                tracing::debug!(cause = %failure.cause, "records of readers that are gone stay where they are");
            }
        });
    }

    /// How many sessions there are, or will be.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let state = self.state.lock();
        state.sessions.len() + state.opening
    }

    #[cfg(test)]
    pub(super) fn sessions(&self) -> Vec<Arc<SessionHandle>> {
        let state = self.state.lock();
        let sessions = state.sessions.iter().map(|entry| &entry.session);
        sessions.map(Arc::clone).collect()
    }

    /// How many sessions a request waits in.
    #[cfg(test)]
    pub(super) fn waiters(&self) -> usize {
        let state = self.state.lock();
        state.sessions.iter().filter(|entry| entry.alone).count()
    }
}

/// Records all holders in this process, so that its own requests find them.
pub(super) async fn record_all() {
    let sessions = SESSIONS.lock().clone();
    let sessions = sessions.iter().filter_map(Weak::upgrade);
    let recorded: Vec<_> = sessions
        .filter(|session| session.has_holders())
        .map(|session| session.send(|reply| SessionCommand::Record { reply }))
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
static SESSIONS: Mutex<Vec<Weak<SessionHandle>>> = Mutex::new(Vec::new());

/// How long an administrative request waits for the records of its own process.
const RECORDING: Duration = Duration::from_secs(1);

/// A session that is being opened; ends with the attempt, also if a runtime drops that.
struct Opening {
    pool: Arc<SessionPool>,
    /// Whether [`SessionPoolState::opening`] counts it.
    is_counted: bool,
    reply: Option<oneshot::Sender<Result<(), SqlFailure>>>,
    result: Option<Result<(), SqlFailure>>,
}

impl Opening {
    fn end_count(&mut self, state: &mut SessionPoolState) {
        state.opening -= usize::from(std::mem::take(&mut self.is_counted));
    }

    fn end(mut self, result: Result<(), SqlFailure>) {
        self.result = Some(result);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let subscribers = {
            let pool = Arc::clone(&self.pool);
            let mut state = pool.state.lock();
            self.end_count(&mut state);
            std::mem::take(&mut state.subscribers)
        };
        self.pool.changed.notify_waiters();
        // Without a result, their ends of the channels are closed.
        let Some(result) = self.result.take() else {
            return;
        };
        for subscriber in subscribers.into_iter().chain(self.reply.take()) {
            drop(subscriber.send(result.clone()));
        }
    }
}

/// A reservation of a session, for one key.
pub(crate) struct Reservation {
    pool: Arc<SessionPool>,
    pub(crate) session: Arc<SessionHandle>,
    key: LockKey,
    is_attempt: bool,
}

impl Reservation {
    pub(super) fn engine(&self) -> &Engine {
        &self.pool.context.engine
    }

    /// The lock is taken: the session can take others beside this one.
    pub(crate) fn settle(&mut self) {
        let ends_attempt = std::mem::take(&mut self.is_attempt);
        self.change(|entry| {
            entry.attempts -= usize::from(ends_attempt);
            entry.alone = false;
        });
    }

    fn change(&self, change: impl FnOnce(&mut SessionEntry)) {
        let mut state = self.pool.state.lock();
        let mut sessions = state.sessions.iter_mut();
        let entry = sessions.find(|entry| entry.session.id == self.session.id);
        entry.map(change);
        drop(state);
        self.pool.changed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.change(|entry| {
            entry.keys.remove(&self.key);
            entry.attempts -= usize::from(self.is_attempt);
            entry.alone = false;
        });
    }
}

/// Interval between two searches for records of ended sessions.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// How many attempts may queue up in a session before others use another one.
const MAX_ATTEMPTS: usize = 2;

/// At most one session in so many may be opened or filled because attempts queue up in others. The rest
/// are for waiters, which need one each.
const SHARED_FRACTION: usize = 2;
