//! One session with the ensemble: all locks of a client live and die with it.

mod held;
mod keep;
mod sentry;
mod sessions;
mod terms;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lock_core::engine::{Engine, LeaseId, Moment};
use lock_core::{LeaseControl, LostReason};
use tokio::sync::{Notify, oneshot, watch};
use zookeeper_client::{Client, Stat};

use crate::config::ZooKeeperConfig;
use crate::dial::dial;
use crate::error::Failure;

use self::held::{Held, Table};
use self::keep::keep;
use self::terms::SessionTerms;

pub(crate) use self::sessions::Sessions;

/// A session is a lease of its time-out that heartbeats renew, and every lock in it has a share: it is
/// held until a deadline that each answered heartbeat moves on. So a process that was paused for longer
/// finds its locks lost at the first look, whatever the client knows by then.
pub(crate) struct Session {
    pub(crate) client: Client,
    engine: Engine,
    terms: SessionTerms,
    /// Held while locks are told something, so that they are told in the order of the events.
    state: Mutex<State>,
    /// Apart from the state: a lock that is told something may end there and then, and be removed.
    held: Mutex<Table>,
    /// There are locks whose nodes nobody watches.
    unwatched: Arc<Notify>,
    over: watch::Sender<bool>,
    /// Where the next one is opened.
    sessions: Weak<Sessions>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Locks are held until the moment, unless a heartbeat is answered before.
    Connected(Moment),
    /// The same, and their nodes have to be looked at before they are beyond doubt again.
    Doubted {
        until: Moment,
        /// When the connection broke.
        since: Moment,
    },
    Over,
}

impl Session {
    /// Opens a session, which lasts as long as the value.
    ///
    /// It is served by the thread of the engine: neither the end of the caller's runtime nor code that
    /// blocks it ends the session.
    async fn open(
        config: &Arc<ZooKeeperConfig>,
        engine: &Engine,
        sessions: Weak<Sessions>,
    ) -> Result<Arc<Self>, Failure> {
        let (tell, told) = oneshot::channel();
        let (config, clock) = (Arc::clone(config), engine.clone());
        engine.spawn_service(async move {
            let sent = clock.now();
            let opened = dial(&config).await;
            // If nobody waits for it any more, the client is dropped and closes the session.
            drop(tell.send(opened.map(|client| (client, sent))));
        });
        let told = told.await;
        let (client, sent) = told.unwrap_or_else(|_| Err(Failure::protocol("no session")))?;
        let terms = SessionTerms::new(client.session_timeout());
        let (states, unwatched) = (client.state_watcher(), Arc::<Notify>::default());
        let session = Arc::new(Self {
            client,
            engine: engine.clone(),
            terms,
            state: Mutex::new(State::Connected(terms.valid_until(sent))),
            held: Mutex::default(),
            unwatched: Arc::clone(&unwatched),
            over: watch::Sender::new(false),
            sessions,
        });
        engine.spawn_service(keep(Arc::downgrade(&session), states, unwatched));
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

    /// Whether a node was created in this session.
    ///
    /// A server may give a client that connects again another session without a word, and a node of the
    /// one before it may be in sight for a while.
    pub(crate) fn owns(&self, node: &Stat) -> bool {
        node.ephemeral_owner == self.client.session_id().0
    }

    /// Runs what nobody waits for.
    pub(crate) fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.engine.spawn_service(task);
    }

    /// Whether an answer to a request that left at `sent` leaves time to hold what it proves.
    pub(crate) fn is_recent(&self, sent: Moment) -> bool {
        self.engine.now() <= self.terms.recent_until(sent)
    }

    /// Looks after a lock, and tells it at once what has happened to the session already. Its node was
    /// seen by a request that left at `seen`.
    pub(crate) fn attach(&self, id: LeaseId, path: String, control: LeaseControl, seen: Moment) {
        let state = lock(&self.state);
        let own = self.terms.valid_until(seen);
        match *state {
            State::Connected(deadline) => control.limit(deadline.max(own)),
            // Those that were held before may be gone, but not this one.
            State::Doubted { since, .. } if since < seen => control.limit(own),
            State::Doubted { until, .. } => control.limit(until),
            State::Over => return control.lose(LostReason::SessionEnded),
        }
        let now = self.engine.now();
        if lock(&self.held).insert(id, path.into(), control, now) {
            self.unwatched.notify_one();
        }
    }

    /// From here on nobody is told that the node is gone.
    pub(crate) fn detach(&self, id: LeaseId) {
        let removed = lock(&self.held).remove(id);
        drop(removed);
    }

    /// The lock is about to get a node of another name, in one transaction.
    pub(crate) fn begin_move(&self, id: LeaseId, path: String) {
        lock(&self.held).begin_move(id, path.into());
    }

    /// The node of the lock is here from now on.
    pub(crate) fn end_move(&self, id: LeaseId, path: String) {
        lock(&self.held).end_move(id, path.into());
        self.unwatched.notify_one();
    }

    /// The node of a lock is gone, and its owner has not deleted it: that detaches the lock first.
    pub(crate) fn node_gone(&self, id: LeaseId, path: &str) {
        let _in_order = lock(&self.state);
        let removed = lock(&self.held).remove_at(id, path);
        if let Some(held) = removed {
            held.control.lose(LostReason::Broken);
        }
    }

    /// The connection is broken; the session may live on.
    fn disconnected(&self) {
        let mut state = lock(&self.state);
        if let State::Connected(deadline)
        | State::Doubted {
            until: deadline, ..
        } = *state
        {
            let since = self.engine.now();
            let until = self.terms.doubted_until(since, deadline);
            *state = State::Doubted { until, since };
            self.limit(until);
        }
    }

    /// A request that left at `sent` has been answered.
    fn proven(&self, sent: Moment) {
        let mut state = lock(&self.state);
        if let State::Connected(_) = *state {
            let deadline = self.terms.valid_until(sent);
            *state = State::Connected(deadline);
            self.limit(deadline);
        }
    }

    /// The nodes of all locks have been looked at, by requests that left at `sent`.
    fn confirmed(&self, sent: Moment) {
        let mut state = lock(&self.state);
        if let State::Doubted { .. } = *state {
            let deadline = self.terms.valid_until(sent);
            *state = State::Connected(deadline);
            self.limit(deadline);
        }
    }

    /// The session is gone, and all its nodes with it, or it cannot be told any more.
    pub(crate) fn end(&self) {
        {
            let mut state = lock(&self.state);
            if std::mem::replace(&mut *state, State::Over) == State::Over {
                return;
            }
            for held in self.locks() {
                held.control.lose(LostReason::SessionEnded);
            }
        }
        Sessions::open_again(&self.sessions);
        self.over.send_replace(true);
    }

    fn limit(&self, deadline: Moment) {
        for held in self.locks() {
            held.control.limit(deadline);
        }
    }

    /// A copy: a lock that is told something may leave the table.
    fn locks(&self) -> Vec<Held> {
        lock(&self.held).all()
    }

    fn is_doubted(&self) -> bool {
        matches!(*lock(&self.state), State::Doubted { .. })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.client.session_id())
            .field("state", &*lock(&self.state))
            .finish_non_exhaustive()
    }
}
