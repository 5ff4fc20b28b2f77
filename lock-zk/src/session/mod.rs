//! One session with the ensemble: all locks of a client live and die with it. The next one replaces it.

pub(crate) mod connect;
mod heartbeat;
mod locks;
pub(crate) mod negotiation;
mod node_watch;
mod reconnect;
mod state;
#[cfg(test)]
mod tests;
mod timing;
mod watch_budget;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use polylock_core::engine::{Engine, LeaseId, Moment, before, is_mutant};
use polylock_core::{LeaseControl, LostReason};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep};
use zookeeper_client::{Client, Error, SessionState, Stat};

use crate::config::ZooKeeperConfig;
use crate::error::{RETRY_BACKOFF, ZkFailure};
use crate::health::check;

use self::connect::{open_session, write};
use self::heartbeat::send_heartbeats;
use self::locks::{NodeWatch, SessionLocks};
use self::negotiation::Negotiated;
use self::state::{SessionPhase, ZkSessionState};
use self::timing::LivenessEvidence;
use self::watch_budget::WatchBudget;

/// A session is a lease that heartbeats renew and its locks share: they are held until a deadline, which
/// answered heartbeats extend. A process that was paused for longer finds its locks lost at its first
/// check, whatever the client knows by then.
pub(crate) struct ZkSession {
    pub(crate) client: Client,
    engine: Engine,
    negotiated: Arc<Negotiated>,
    /// Held while locks are limited, so that they see the events in their order. A loss is final in
    /// any order, and reported without it: its receivers may release other locks.
    state: Mutex<ZkSessionState>,
    /// Taken after the state.
    locks: Mutex<SessionLocks>,
    /// There are locks with unwatched nodes.
    unwatched: Arc<Notify>,
    pub(crate) watch_budget: WatchBudget,
    over: watch::Sender<bool>,
    /// Where the next one is opened.
    sessions: Weak<ZkSessions>,
}

impl ZkSession {
    /// Opens a session, which lasts as long as the value.
    ///
    /// It is a task of the engine, which callers poll when they send requests: neither the end of a caller's
    /// runtime nor code that blocks it ends the session.
    async fn open(
        config: &Arc<ZooKeeperConfig>,
        engine: &Engine,
        sessions: Weak<ZkSessions>,
    ) -> Result<Arc<Self>, ZkFailure> {
        let (sender, receiver) = oneshot::channel();
        let (connect_config, clock) = (Arc::clone(config), engine.clone());
        engine.spawn_service(async move {
            let opened = open_session(&connect_config, &clock).await;
            // If the caller is gone, the client is dropped and closes the session.
            drop(sender.send(opened));
        });
        let opened = receiver.await;
        let (client, asked, negotiated) =
            opened.unwrap_or_else(|_| Err(ZkFailure::Malformed("no session".to_owned())))?;
        let evidence = LivenessEvidence::opened(client.session_timeout(), asked);
        let (states, unwatched) = (client.state_watcher(), Arc::<Notify>::default());
        let session = Arc::new(Self {
            client,
            engine: engine.clone(),
            negotiated,
            state: Mutex::new(ZkSessionState {
                phase: SessionPhase::Connected,
                evidence,
                broke: None,
            }),
            locks: Mutex::default(),
            unwatched: Arc::clone(&unwatched),
            watch_budget: WatchBudget::of(&config.root),
            over: watch::Sender::new(false),
            sessions,
        });
        engine.spawn_service(send_heartbeats(Arc::downgrade(&session), states, unwatched));
        Ok(session)
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits for the end of the session.
    pub(crate) async fn ended(&self) {
        let mut over = self.over.subscribe();
        // The sender lives as long as the session.
        drop(over.wait_for(|over| *over).await);
    }

    /// Waits until the client is in this state. One that it leaves at once may be missed.
    pub(crate) async fn reached(&self, state: SessionState) {
        let mut states = self.client.state_watcher();
        while states.state() != state {
            states.changed().await;
        }
    }

    /// Whether a node was created in this session.
    ///
    /// A server may silently give a reconnecting client another session, while a node of the old session is
    /// still visible.
    pub(crate) fn owns(&self, node: &Stat) -> bool {
        node.ephemeral_owner == self.client.session_id().0
    }

    /// Runs a task in the background.
    pub(crate) fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.engine.spawn_service(task);
    }

    /// The state, by the smallest timeout that a server has granted so far.
    fn state(&self) -> MutexGuard<'_, ZkSessionState> {
        let mut state = lock(&self.state);
        if let Some(timeout) = self
            .negotiated
            .smallest()
            .filter(|_| !keeps_first_timeout())
        {
            state.evidence.shorten(timeout);
        }
        state
    }

    /// Whether the connection has broken since.
    pub(crate) fn broke_since(&self, moment: Moment) -> bool {
        self.state().broke_since(moment)
    }

    fn is_doubted(&self) -> bool {
        matches!(self.state().phase, SessionPhase::Doubted { .. })
    }

    fn limit(&self, deadline: Moment) {
        let controls = lock(&self.locks).controls();
        for control in controls {
            control.limit(deadline);
        }
    }

    /// Whether the reply to a request sent at `sent` proves that a lock is held: it is recent and of this
    /// connection, and the session is known to last.
    pub(crate) fn proves(&self, sent: Moment) -> bool {
        let now = self.engine.now();
        let mut state = self.state();
        let is_old = state.broke_since(sent) || now > state.evidence.recent_until(sent);
        if is_old || state.phase == SessionPhase::Over {
            return false;
        }
        self.resume_if_connected(&mut state);
        // The connection may be another one than it was known to be.
        !state.broke_since(sent) && now < state.evidence.valid_until()
    }

    /// Whether a grant needs a write first, as a proof that the session lasts.
    pub(crate) fn is_unproven(&self) -> bool {
        self.state().evidence.is_too_old(self.engine.now())
    }

    /// Commits a write that changes nothing, as a proof that the session lasts.
    pub(crate) async fn prove(&self) -> Result<(), Error> {
        let sent = self.engine.now();
        match write(&self.client).await {
            // A majority stores a refused transaction as well. The access list of the root has changed since
            // the session began.
            Ok(()) | Err(Error::NoAuth) => self.committed(sent),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A write of this session, which left at `sent`, has been committed.
    pub(crate) fn committed(&self, sent: Moment) {
        let mut state = self.state();
        if state.phase == SessionPhase::Over || state.broke_since(sent) {
            return;
        }
        self.resume_if_connected(&mut state);
        if !state.broke_since(sent) {
            state.evidence.committed(sent);
        }
    }

    /// Manages a lock, and reports at once what has happened to the session already. Its node was
    /// seen by a request that left at `seen`.
    pub(crate) fn attach(&self, id: LeaseId, path: String, control: &LeaseControl, seen: Moment) {
        let mut state = self.state();
        if state.broke_since(seen) && !lock(&self.locks).has(id) {
            // Its node was not checked, nor will be before it counts as held.
            drop(state);
            return control.lose(LostReason::Unreachable);
        }
        let deadline = match state.phase {
            SessionPhase::Connected => state.evidence.valid_until(),
            // Nodes that were there before may be gone, but not this one.
            SessionPhase::Doubted { since, .. } if since < seen => {
                self.resume_if_connected(&mut state);
                state.evidence.valid_until()
            }
            SessionPhase::Doubted { until, .. } => until,
            SessionPhase::Over => {
                drop(state);
                control.lose(LostReason::SessionEnded);
                return self.delete_nodes([path.into()]);
            }
        };
        control.limit(deadline);
        let now = self.engine.now();
        let is_there = lock(&self.locks).insert(id, path.into(), control.clone(), now);
        drop(state);
        if is_there {
            self.unwatched.notify_one();
        } else {
            control.lose(LostReason::Broken);
        }
    }

    /// From here on the end of the node is not reported.
    pub(crate) fn detach(&self, id: LeaseId) {
        lock(&self.locks).remove(id);
    }

    /// The lock is about to get a node of another name, in one transaction.
    pub(crate) fn begin_move(&self, id: LeaseId, path: String) {
        lock(&self.locks).set_node(id, path.into(), NodeWatch::Moving);
    }

    /// The node of the lock is here from now on; notes if it is deleted instead.
    pub(crate) fn end_move(&self, id: LeaseId, path: String, is_deleted: &AtomicBool) {
        let path = Arc::<str>::from(path);
        let control = lock(&self.locks).set_node(id, Arc::clone(&path), NodeWatch::None);
        match control {
            Some(_) if !self.is_over() => return self.unwatched.notify_one(),
            // The session ended while the name was unknown.
            Some(control) => control.lose(LostReason::SessionEnded),
            // The lock was released while the name was unknown: the release may have missed the node.
            None => {}
        }
        is_deleted.store(true, Ordering::Relaxed);
        self.delete_nodes([path]);
    }

    /// The node of a lock is gone, and its owner has not deleted it: that detaches the lock first.
    pub(crate) fn node_gone(&self, id: LeaseId, path: &str) {
        let gone = lock(&self.locks).gone(id, path);
        if let Some(control) = gone {
            control.lose(LostReason::Broken);
        }
    }

    /// The node of a lock cannot be looked for: only this lock is lost, and not all of the session.
    pub(crate) fn lose(&self, id: LeaseId) {
        // A copy, because the lock may leave when its holder is notified.
        let control = lock(&self.locks).control(id);
        if let Some(control) = control {
            control.lose(LostReason::Unreachable);
        }
    }

    /// Deletes the nodes of lost locks in the background: the server may keep the session for as long as
    /// any of their guards exists. Holders are notified before.
    pub(crate) fn delete_nodes(&self, paths: impl IntoIterator<Item = Arc<str>>) {
        let client = &self.client;
        let deletions = paths.into_iter().map(|path| {
            let client = client.clone();
            async move {
                while let Err(failure) = client.delete(&path, None).await.map_err(ZkFailure::from)
                    && !failure.is_over()
                    && (failure.is_ambiguous() || failure.is_retryable())
                {
                    sleep(RETRY_BACKOFF).await;
                }
            }
        });
        let deletions = join_all(deletions);
        self.in_background(async move { drop(deletions.await) });
    }
}

/// Whether the timeout of the first connection counts for all.
fn keeps_first_timeout() -> bool {
    is_mutant("zookeeper-session-timeout")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for ZkSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkSession")
            .field("id", &self.client.session_id())
            .field("phase", &self.state().phase)
            .finish_non_exhaustive()
    }
}

/// The current session of a client, which is replaced when it ends.
pub(crate) struct ZkSessions {
    pub(crate) config: Arc<ZooKeeperConfig>,
    engine: Engine,
    current: watch::Sender<Current>,
}

enum Current {
    Live(Arc<ZkSession>),
    /// Another one is being opened; why the last attempt failed.
    Opening(Option<ZkFailure>),
}

impl ZkSessions {
    /// Opens the first session, and checks the ensemble.
    pub(crate) async fn open(
        config: ZooKeeperConfig,
        engine: &Engine,
    ) -> Result<Arc<Self>, ZkFailure> {
        let sessions = Arc::new(Self {
            config: Arc::new(config),
            engine: engine.clone(),
            current: watch::Sender::new(Current::Opening(None)),
        });
        let session = sessions.open_session().await?;
        // One that has ended by now does not replace the next.
        sessions.current.send_if_modified(|current| {
            let is_live = !session.is_over();
            if is_live {
                *current = Current::Live(Arc::clone(&session));
            }
            is_live
        });
        check(&session.client, &sessions.config)?;
        Ok(sessions)
    }

    async fn open_session(self: &Arc<Self>) -> Result<Arc<ZkSession>, ZkFailure> {
        ZkSession::open(&self.config, &self.engine, Arc::downgrade(self)).await
    }

    /// The session, or the next one as soon as it is there.
    pub(crate) async fn get(&self, deadline: Instant) -> Result<Arc<ZkSession>, ZkFailure> {
        if let Some(live) = self.current.borrow().live() {
            return Ok(live);
        }
        let mut current = self.current.subscribe();
        let known = current.wait_for(Current::is_known);
        if let Some(Ok(known)) = before(deadline, known).await {
            match &*known {
                Current::Live(session) => return Ok(Arc::clone(session)),
                Current::Opening(failure) => {
                    if let Some(failure) = failure {
                        return Err(failure.clone());
                    }
                }
            }
        }
        let last = match &*self.current.borrow() {
            Current::Opening(Some(failure)) => failure.clone(),
            _ => ZkFailure::Silent(self.config.timeout),
        };
        Err(last)
    }

    /// Opens another session in the place of one that has ended.
    fn open_again(this: &Weak<Self>) {
        let Some(sessions) = this.upgrade() else {
            return;
        };
        sessions.current.send_replace(Current::Opening(None));
        let this = Weak::clone(this);
        sessions.engine.spawn_service(retry_open(this));
    }
}

/// Tries to open a session until there is one, or no caller waits for it.
async fn retry_open(sessions: Weak<ZkSessions>) {
    let mut backoff = MIN_BACKOFF;
    loop {
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        match sessions.open_session().await {
            Ok(session) => {
                sessions.current.send_replace(Current::Live(session));
                return;
            }
            Err(failure) => {
                let error = polylock_core::Error::from(failure.clone());
                tracing::warn!(%error, "no session with ZooKeeper");
                let opening = Current::Opening(Some(failure));
                sessions.current.send_replace(opening);
            }
        }
        let jittered = sessions.engine.jitter(backoff / 2, backoff);
        drop(sessions);
        sleep(jittered).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

impl Current {
    fn live(&self) -> Option<Arc<ZkSession>> {
        match self {
            Self::Live(session) if !session.is_over() => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// Whether waiting is useless.
    fn is_known(&self) -> bool {
        match self {
            Self::Live(session) => !session.is_over(),
            Self::Opening(failure) => failure.as_ref().is_some_and(|f| !f.is_retryable()),
        }
    }
}

impl fmt::Debug for ZkSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkSessions")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
