//! Ephemeral, sequential nodes and the sessions that they live with. Pure: time comes from outside.

use std::collections::{BTreeMap, HashMap};

use lock_core::engine::{LeaseId, Moment};
use lock_core::{Label, LockKey, Mode};
use tokio::sync::{mpsc, oneshot};

/// Everything that the ensemble agrees on.
#[derive(Default)]
pub(super) struct Tree {
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

/// A node that is gone, and whom to tell.
pub(super) struct Deleted {
    pub(super) key: LockKey,
    pub(super) id: LeaseId,
    pub(super) watchers: Vec<oneshot::Sender<()>>,
    pub(super) owner: Option<mpsc::UnboundedSender<LeaseId>>,
}

/// A session that the ensemble does not know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expired;

impl Tree {
    pub(super) fn open(&mut self, expires: Moment) -> (u64, mpsc::UnboundedReceiver<LeaseId>) {
        let (events, receiver) = mpsc::unbounded_channel();
        self.zxid += 1;
        self.sessions.insert(self.zxid, Session { expires, events });
        (self.zxid, receiver)
    }

    pub(super) fn touch(&mut self, session: u64, expires: Moment) -> Result<(), Expired> {
        self.sessions.get_mut(&session).ok_or(Expired)?.expires = expires;
        Ok(())
    }

    pub(super) fn overdue(&self, now: Moment) -> Vec<u64> {
        let over = self
            .sessions
            .iter()
            .filter(|(_, session)| session.expires <= now);
        over.map(|(id, _)| *id).collect()
    }

    /// Ends a session with all of its nodes.
    pub(super) fn close(&mut self, session: u64) -> Vec<Deleted> {
        self.sessions.remove(&session);
        let keys = self.keys();
        keys.iter()
            .flat_map(|key| self.delete(key, |node| node.session == session))
            .collect()
    }

    /// Creates a node, unless it is there already.
    pub(super) fn create(
        &mut self,
        session: u64,
        key: &LockKey,
        contender: &Contender,
    ) -> Result<(), Expired> {
        if !self.sessions.contains_key(&session) {
            return Err(Expired);
        }
        let directory = self.directories.entry(key.clone()).or_default();
        if !directory
            .nodes
            .iter()
            .any(|node| node.contender.id == contender.id)
        {
            let (contender, watchers) = (contender.clone(), Vec::new());
            directory.nodes.push(Node {
                session,
                contender,
                watchers,
            });
            self.zxid += 1;
            directory.pzxid = self.zxid;
        }
        Ok(())
    }

    pub(super) fn children(&self, key: &LockKey) -> Children {
        let Some(directory) = self.directories.get(key) else {
            return Children {
                nodes: Vec::new(),
                pzxid: self.zxid,
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

    /// Writes a token into a node, its own transaction if none is given; `None` if it is gone.
    pub(super) fn set_token(
        &mut self,
        key: &LockKey,
        id: LeaseId,
        token: Option<u64>,
    ) -> Option<u64> {
        self.zxid += 1;
        let zxid = self.zxid;
        self.node(key, id)?.contender.token = token.or(Some(zxid));
        Some(zxid)
    }

    /// Watches a node; a node that is gone tells at once.
    pub(super) fn watch(&mut self, key: &LockKey, id: LeaseId) -> oneshot::Receiver<()> {
        let (watcher, gone) = oneshot::channel();
        if let Some(node) = self.node(key, id) {
            node.watchers.push(watcher);
        }
        gone
    }

    pub(super) fn delete_node(&mut self, key: &LockKey, id: LeaseId) -> Vec<Deleted> {
        self.delete(key, |node| node.contender.id == id)
    }

    /// The session of a node.
    pub(super) fn session_of(&mut self, key: &LockKey, id: LeaseId) -> Option<u64> {
        self.node(key, id).map(|node| node.session)
    }

    pub(super) fn keys(&self) -> Vec<LockKey> {
        self.directories.keys().cloned().collect()
    }

    fn node(&mut self, key: &LockKey, id: LeaseId) -> Option<&mut Node> {
        let nodes = &mut self.directories.get_mut(key)?.nodes;
        nodes.iter_mut().find(|node| node.contender.id == id)
    }

    fn delete(&mut self, key: &LockKey, doomed: impl Fn(&Node) -> bool) -> Vec<Deleted> {
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
