use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lock_core::engine::{BootClock, Clock, Engine, LeaseId, Moment};
use lock_core::{Label, LockKey, Mode};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::NAME;
use crate::doubles::wire::{Wire, lock};

/// The ensemble: a tree of ephemeral, sequential nodes, and the sessions that they live with.
pub(super) struct Server {
    pub(super) wire: Wire,
    clock: BootClock,
    state: Mutex<State>,
    changes: broadcast::Sender<LockKey>,
}

#[derive(Default)]
struct State {
    sessions: HashMap<u64, Session>,
    directories: BTreeMap<LockKey, Directory>,
    /// The transaction that was last made, of all nodes and sessions.
    zxid: u64,
}

struct Session {
    expires: Moment,
    events: mpsc::UnboundedSender<LeaseId>,
}

/// The contenders for one key, in the order of their numbers.
#[derive(Default)]
struct Directory {
    nodes: Vec<Node>,
    /// The transaction that changed the list of children last.
    pzxid: u64,
}

struct Node {
    session: u64,
    contender: Contender,
    /// Told when the node is gone.
    watchers: Vec<oneshot::Sender<()>>,
}

/// What a contender writes into its node.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) id: LeaseId,
    pub(super) mode: Mode,
    pub(super) label: Label,
    pub(super) token: Option<u64>,
}

/// The children of a directory, as they were at one transaction.
#[derive(Clone, Debug)]
pub(super) struct Children {
    pub(super) nodes: Vec<Contender>,
    pub(super) pzxid: u64,
}

/// A session that the server does not know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expired;

impl Server {
    pub(super) fn start() -> Arc<Self> {
        let (changes, _) = broadcast::channel(1024);
        let (wire, clock) = (Wire::default(), BootClock::default());
        let server = Arc::new(Self {
            wire,
            clock,
            state: Mutex::default(),
            changes,
        });
        let ticking = Arc::downgrade(&server);
        Engine::of_this_process(NAME).spawn(tick(ticking));
        server
    }

    pub(super) fn open(&self, timeout: Duration) -> (u64, mpsc::UnboundedReceiver<LeaseId>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let mut state = lock(&self.state);
        state.zxid += 1;
        let id = state.zxid;
        state.sessions.insert(
            id,
            Session {
                expires: self.clock.now() + timeout,
                events,
            },
        );
        (id, receiver)
    }

    pub(super) fn ping(&self, session: u64, timeout: Duration) -> Result<(), Expired> {
        let mut state = lock(&self.state);
        let session = state.sessions.get_mut(&session).ok_or(Expired)?;
        session.expires = self.clock.now() + timeout;
        Ok(())
    }

    pub(super) fn close(&self, session: u64) {
        let deleted = {
            let mut state = lock(&self.state);
            state.sessions.remove(&session);
            state.delete(|node| node.session == session)
        };
        self.tell(deleted);
    }

    /// Creates a node, unless it is there already.
    pub(super) fn create(
        &self,
        session: u64,
        key: &LockKey,
        contender: &Contender,
    ) -> Result<(), Expired> {
        let mut state = lock(&self.state);
        if !state.sessions.contains_key(&session) {
            return Err(Expired);
        }
        state.zxid += 1;
        let zxid = state.zxid;
        let directory = state.directories.entry(key.clone()).or_default();
        if !directory
            .nodes
            .iter()
            .any(|node| node.contender.id == contender.id)
        {
            let contender = contender.clone();
            directory.nodes.push(Node {
                session,
                contender,
                watchers: Vec::new(),
            });
            directory.pzxid = zxid;
        }
        drop(state);
        self.changed(key);
        Ok(())
    }

    pub(super) fn children(&self, key: &LockKey) -> Children {
        let state = lock(&self.state);
        let Some(directory) = state.directories.get(key) else {
            return Children {
                nodes: Vec::new(),
                pzxid: state.zxid,
            };
        };
        let nodes = directory
            .nodes
            .iter()
            .map(|node| node.contender.clone())
            .collect();
        Children {
            nodes,
            pzxid: directory.pzxid,
        }
    }

    /// Changes the data of a node; the transaction, or `None` if the node is gone.
    pub(super) fn set_token(&self, key: &LockKey, id: LeaseId, token: Option<u64>) -> Option<u64> {
        let mut state = lock(&self.state);
        state.zxid += 1;
        let zxid = state.zxid;
        let nodes = &mut state.directories.get_mut(key)?.nodes;
        let node = nodes.iter_mut().find(|node| node.contender.id == id)?;
        node.contender.token = token.or(Some(zxid));
        drop(state);
        self.changed(key);
        Some(zxid)
    }

    /// Watches a node; a node that is gone tells at once.
    pub(super) fn watch(&self, key: &LockKey, id: LeaseId) -> oneshot::Receiver<()> {
        let (watcher, gone) = oneshot::channel();
        let mut state = lock(&self.state);
        let nodes = state
            .directories
            .get_mut(key)
            .into_iter()
            .flat_map(|dir| &mut dir.nodes);
        if let Some(node) = nodes.into_iter().find(|node| node.contender.id == id) {
            node.watchers.push(watcher);
        }
        gone
    }

    /// Deletes a node; whether it was there.
    pub(super) fn delete(&self, key: &LockKey, id: LeaseId) -> bool {
        let deleted = lock(&self.state).delete_in(key, |node| node.contender.id == id);
        let there = !deleted.is_empty();
        self.tell(deleted);
        there
    }

    /// Ends the sessions of those who hold a key, as after a time-out.
    pub(super) fn expire_holders(&self, key: &LockKey, holds: impl Fn(&Contender) -> bool) {
        let holders: Vec<_> = {
            let state = lock(&self.state);
            let nodes = state
                .directories
                .get(key)
                .into_iter()
                .flat_map(|dir| &dir.nodes);
            nodes
                .filter(|node| holds(&node.contender))
                .map(|node| node.session)
                .collect()
        };
        holders.into_iter().for_each(|session| self.close(session));
    }

    pub(super) fn keys(&self) -> Vec<LockKey> {
        lock(&self.state).directories.keys().cloned().collect()
    }

    pub(super) fn changes(&self) -> broadcast::Receiver<LockKey> {
        self.changes.subscribe()
    }

    fn expire(&self) {
        let now = self.clock.now();
        let expired: Vec<_> = {
            let state = lock(&self.state);
            let over = state
                .sessions
                .iter()
                .filter(|(_, session)| session.expires <= now);
            over.map(|(id, _)| *id).collect()
        };
        expired.into_iter().for_each(|session| self.close(session));
    }

    /// Tells watchers and owners what was deleted, if they can be reached.
    fn tell(&self, deleted: Vec<Deleted>) {
        for Deleted {
            key,
            id,
            watchers,
            owner,
        } in deleted
        {
            self.changed(&key);
            if self.wire.is_cut() {
                continue;
            }
            for watcher in watchers {
                // Who watched may have given up.
                let _gone = watcher.send(());
            }
            if let Some(owner) = owner {
                // A client without a task has no guards either.
                let _gone = owner.send(id);
            }
        }
    }

    fn changed(&self, key: &LockKey) {
        // Mostly nobody watches.
        let _nobody = self.changes.send(key.clone());
    }
}

/// A node that is gone, and whom to tell.
struct Deleted {
    key: LockKey,
    id: LeaseId,
    watchers: Vec<oneshot::Sender<()>>,
    owner: Option<mpsc::UnboundedSender<LeaseId>>,
}

impl State {
    fn delete(&mut self, doomed: impl Fn(&Node) -> bool) -> Vec<Deleted> {
        let keys: Vec<_> = self.directories.keys().cloned().collect();
        keys.iter()
            .flat_map(|key| self.delete_in(key, &doomed))
            .collect()
    }

    fn delete_in(&mut self, key: &LockKey, doomed: impl Fn(&Node) -> bool) -> Vec<Deleted> {
        let Some(directory) = self.directories.get_mut(key) else {
            return Vec::new();
        };
        let mut deleted = Vec::new();
        for node in directory.nodes.extract_if(.., |node| doomed(node)) {
            self.zxid += 1;
            directory.pzxid = self.zxid;
            let owner = self
                .sessions
                .get(&node.session)
                .map(|session| session.events.clone());
            let (key, id) = (key.clone(), node.contender.id);
            deleted.push(Deleted {
                key,
                id,
                watchers: node.watchers,
                owner,
            });
        }
        if directory.nodes.is_empty() {
            // Made anew, the directory has later transactions only.
            self.directories.remove(key);
        }
        deleted
    }
}

/// The clock of the ensemble, which ends sessions.
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
