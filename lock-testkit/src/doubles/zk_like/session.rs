use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lock_core::engine::{Engine, LeaseId, Moment};
use lock_core::memory::Request;
use lock_core::{LeaseControl, LockKey, LostReason, Result};
use tokio::sync::{mpsc, watch};

use super::TIMEOUT;
use super::server::Server;
use super::tree::Expired;
use crate::doubles::wire::{broken, lock};

/// A session of one client: all of its locks live and die with it.
pub(super) struct Session {
    pub(super) server: Arc<Server>,
    pub(super) id: u64,
    engine: Engine,
    /// Held while locks are told something, so that they are told in the order of the events.
    state: Mutex<State>,
    /// Apart from the state: a lock that is told something may end there and then, and be removed.
    locks: Mutex<HashMap<LeaseId, (LockKey, LeaseControl)>>,
    over: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Connected,
    /// What is not confirmed by then is lost.
    Disconnected(Moment),
    Over,
}

impl Session {
    /// Opens a session, and keeps it alive until the value is dropped.
    pub(super) async fn open(server: &Arc<Server>, engine: &Engine) -> Result<Arc<Self>> {
        let sent = engine.now();
        let (id, events) = server.wire.send(|| server.open()).await?;
        let session = Arc::new(Self {
            server: Arc::clone(server),
            id,
            engine: engine.clone(),
            state: Mutex::new(State::Connected),
            locks: Mutex::default(),
            over: watch::Sender::new(false),
        });
        // The task lasts as long as the session: counted apart, no shutdown waits for it.
        let service = engine.for_backend(engine.backend());
        service.spawn(keep_alive(Arc::downgrade(&session), events, sent));
        Ok(session)
    }

    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits for the end of the session.
    pub(super) async fn ended(&self) {
        let mut over = self.over.subscribe();
        // The sender lives as long as the session.
        drop(over.wait_for(|over| *over).await);
    }

    /// Looks after a lock, and tells it at once what has happened to the session already.
    pub(super) fn attach(&self, key: &LockKey, id: LeaseId, control: LeaseControl) {
        let state = lock(&self.state);
        match *state {
            State::Connected => {}
            State::Disconnected(deadline) => control.limit(deadline),
            State::Over => return control.lose(LostReason::SessionEnded),
        }
        lock(&self.locks).insert(id, (key.clone(), control));
    }

    pub(super) fn detach(&self, id: LeaseId) {
        let removed = lock(&self.locks).remove(&id);
        drop(removed);
    }

    fn locks(&self) -> Vec<(LeaseId, LockKey, LeaseControl)> {
        let locks = lock(&self.locks);
        let copy = |(id, (key, control)): (&LeaseId, &(LockKey, LeaseControl))| {
            (*id, key.clone(), control.clone())
        };
        locks.iter().map(copy).collect()
    }

    /// A node is gone that its owner has not deleted: that detaches the lock first.
    fn deleted(&self, id: LeaseId) {
        let _state = lock(&self.state);
        let removed = lock(&self.locks).remove(&id);
        if let Some((_, control)) = removed {
            control.lose(LostReason::Broken);
        }
    }

    fn disconnected(&self, deadline: Moment) {
        let mut state = lock(&self.state);
        if *state != State::Over {
            *state = State::Disconnected(deadline);
            self.locks()
                .iter()
                .for_each(|(_, _, control)| control.limit(deadline));
        }
    }

    /// The session lives: every lock whose node is there is held beyond doubt.
    fn connected(&self) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Disconnected(_)) {
            return;
        }
        *state = State::Connected;
        for (id, key, control) in self.locks() {
            if self
                .server
                .children(&key)
                .nodes
                .iter()
                .any(|node| node.id == id)
            {
                control.confirm();
            } else {
                control.lose(LostReason::Broken);
            }
        }
    }

    fn end(&self) {
        let mut state = lock(&self.state);
        *state = State::Over;
        self.locks()
            .iter()
            .for_each(|(_, _, control)| control.lose(LostReason::SessionEnded));
        self.over.send_replace(true);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A client that is cut off cannot say goodbye; its session times out.
        if !self.server.wire.is_cut() {
            self.server.close(self.id);
        }
    }
}

/// Pings the server, and passes on what it tells.
async fn keep_alive(
    session: Weak<Session>,
    mut events: mpsc::UnboundedReceiver<LeaseId>,
    opened: Moment,
) {
    let mut answered = opened;
    let pause = TIMEOUT / 6;
    loop {
        let event = tokio::time::timeout(pause, events.recv()).await;
        let Some(session) = session.upgrade() else {
            return;
        };
        match event {
            Ok(Some(id)) => session.deleted(id),
            // The server has closed the connection; a ping tells why.
            Ok(None) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(_) => {}
        }
        // The server counts the time-out from the ping, which it gets after this.
        let sent = session.engine.now();
        let ping = || session.server.ping(session.id);
        let ping = session.server.wire.call(Request::Renew, ping);
        let reply = tokio::time::timeout(pause, ping).await;
        match reply.unwrap_or_else(|_| Err(broken("no reply to a ping"))) {
            Ok(Ok(())) => {
                answered = sent;
                session.connected();
            }
            Ok(Err(Expired)) => return session.end(),
            Err(_) => session.disconnected(answered + TIMEOUT / 2),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
