use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::{BootClock, Clock, Engine, Moment};
use tokio::sync::{oneshot, watch};

use super::{KEEPALIVE, NAME};
use crate::doubles::wire::{Wire, lock};
use crate::harness::Look;

/// The database: rows that transactions lock, and the connections that those are open on.
pub(super) struct Server {
    pub(super) wire: Wire,
    clock: BootClock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connections: HashMap<u64, Connection>,
    rows: HashMap<LockKey, Row>,
    last_connection: u64,
    /// A sequence, which no rolled-back transaction takes back.
    last_token: u64,
}

struct Connection {
    seen: Moment,
    /// True once the server has closed it.
    closed: watch::Sender<bool>,
}

/// A row that transactions lock, first come, first served.
#[derive(Default)]
struct Row {
    holder: Option<u64>,
    queue: VecDeque<(u64, oneshot::Sender<u64>)>,
}

/// What a statement that locks a row says.
pub(super) enum Answer {
    /// Somebody else has it, and the statement does not wait.
    Busy,
    /// The connection is closed.
    Closed,
    /// The transaction has it, with this token.
    Locked(u64),
    /// The statement waits in the server.
    Waits(oneshot::Receiver<u64>),
}

impl Server {
    pub(super) fn start() -> Arc<Self> {
        let (wire, clock) = (Wire::default(), BootClock::default());
        let server = Arc::new(Self {
            wire,
            clock,
            state: Mutex::default(),
        });
        Engine::of_this_process(NAME).spawn(tick(Arc::downgrade(&server)));
        server
    }

    pub(super) fn open(&self) -> (u64, watch::Receiver<bool>) {
        let (closed, receiver) = watch::channel(false);
        let mut state = lock(&self.state);
        state.last_connection += 1;
        let id = state.last_connection;
        state.connections.insert(
            id,
            Connection {
                seen: self.clock.now(),
                closed,
            },
        );
        (id, receiver)
    }

    /// `SELECT 1`: false on a connection that is closed.
    pub(super) fn ping(&self, connection: u64) -> bool {
        let mut state = lock(&self.state);
        let seen = state.connections.get_mut(&connection);
        seen.map(|connection| connection.seen = self.clock.now())
            .is_some()
    }

    /// `SELECT ... FOR UPDATE`, with `NOWAIT` unless it waits.
    pub(super) fn lock_row(&self, connection: u64, key: &LockKey, waits: bool) -> Answer {
        let mut state = lock(&self.state);
        let State {
            connections,
            rows,
            last_token,
            ..
        } = &mut *state;
        if !connections.contains_key(&connection) {
            return Answer::Closed;
        }
        let row = rows.entry(key.clone()).or_default();
        match row.holder {
            Some(holder) if holder != connection && waits => {
                let (granted, waiting) = oneshot::channel();
                // The same statement once more takes the place of the first.
                row.queue.retain(|(waiter, _)| *waiter != connection);
                row.queue.push_back((connection, granted));
                Answer::Waits(waiting)
            }
            Some(holder) if holder != connection => Answer::Busy,
            _ => {
                row.holder = Some(connection);
                *last_token += 1;
                Answer::Locked(*last_token)
            }
        }
    }

    /// `nextval`, if the transaction has the row.
    pub(super) fn next_token(&self, connection: u64, key: &LockKey) -> Option<u64> {
        let mut state = lock(&self.state);
        let holds = state.rows.get(key)?.holder == Some(connection);
        holds.then(|| {
            state.last_token += 1;
            state.last_token
        })
    }

    /// Ends the transaction with its locks and waits, and the connection; whether it had the row.
    pub(super) fn close(&self, connection: u64, key: &LockKey) -> bool {
        let mut state = lock(&self.state);
        let held = state
            .rows
            .get(key)
            .is_some_and(|row| row.holder == Some(connection));
        state.close(connection);
        held
    }

    /// `pg_terminate_backend` for the holder of a row.
    pub(super) fn terminate_holder(&self, key: &LockKey) {
        let mut state = lock(&self.state);
        if let Some(holder) = state.rows.get(key).and_then(|row| row.holder) {
            state.close(holder);
        }
    }

    pub(super) fn look(&self, key: &LockKey) -> Look {
        let state = lock(&self.state);
        let row = state.rows.get(key);
        row.map_or_else(Look::default, |row| {
            Look::new(usize::from(row.holder.is_some()), row.queue.len())
        })
    }

    /// Closes connections whose clients are silent, as keepalive does.
    fn expire(&self) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let silent = state
            .connections
            .iter()
            .filter(|(_, it)| it.seen + KEEPALIVE <= now);
        let silent: Vec<_> = silent.map(|(id, _)| *id).collect();
        silent
            .into_iter()
            .for_each(|connection| state.close(connection));
    }
}

impl State {
    fn close(&mut self, connection: u64) {
        if let Some(connection) = self.connections.remove(&connection) {
            connection.closed.send_replace(true);
        }
        let Self {
            rows, last_token, ..
        } = self;
        rows.retain(|_, row| {
            row.queue.retain(|(waiter, _)| *waiter != connection);
            if row.holder == Some(connection) {
                row.holder = None;
            }
            while row.holder.is_none() {
                let Some((next, granted)) = row.queue.pop_front() else {
                    break;
                };
                *last_token += 1;
                row.holder = Some(next);
                // The holder is the connection, whether its client still listens or not.
                let _heard = granted.send(*last_token);
            }
            row.holder.is_some()
        });
    }
}

/// The clock of the server.
async fn tick(server: Weak<Server>) {
    while let Some(server) = server.upgrade() {
        server.expire();
        drop(server);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
