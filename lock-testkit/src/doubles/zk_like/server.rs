use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::{BootClock, Clock, Engine, LeaseId};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::tree::{Children, Contender, Deleted, Expired, Tree};
use super::{NAME, TIMEOUT};
use crate::doubles::wire::{Wire, lock};

/// The ensemble, and whom it tells what.
pub(super) struct Server {
    pub(super) wire: Wire,
    clock: BootClock,
    tree: Mutex<Tree>,
    changes: broadcast::Sender<LockKey>,
}

impl Server {
    pub(super) fn start() -> Arc<Self> {
        let (changes, _) = broadcast::channel(1024);
        let (wire, clock, tree) = (Wire::default(), BootClock::default(), Mutex::default());
        let server = Arc::new(Self {
            wire,
            clock,
            tree,
            changes,
        });
        Engine::of_this_process(NAME).spawn(tick(Arc::downgrade(&server)));
        server
    }

    pub(super) fn open(&self) -> (u64, mpsc::UnboundedReceiver<LeaseId>) {
        lock(&self.tree).open(self.clock.now() + TIMEOUT)
    }

    pub(super) fn ping(&self, session: u64) -> Result<(), Expired> {
        lock(&self.tree).touch(session, self.clock.now() + TIMEOUT)
    }

    pub(super) fn close(&self, session: u64) {
        let deleted = lock(&self.tree).close(session);
        self.tell(deleted);
    }

    pub(super) fn create(
        &self,
        session: u64,
        key: &LockKey,
        contender: &Contender,
    ) -> Result<(), Expired> {
        lock(&self.tree).create(session, key, contender)?;
        self.changed(key);
        Ok(())
    }

    pub(super) fn children(&self, key: &LockKey) -> Children {
        lock(&self.tree).children(key)
    }

    pub(super) fn set_token(&self, key: &LockKey, id: LeaseId, token: Option<u64>) -> Option<u64> {
        let zxid = lock(&self.tree).set_token(key, id, token);
        self.changed(key);
        zxid
    }

    pub(super) fn watch(&self, key: &LockKey, id: LeaseId) -> oneshot::Receiver<()> {
        lock(&self.tree).watch(key, id)
    }

    /// Deletes a node; whether it was there.
    pub(super) fn delete(&self, key: &LockKey, id: LeaseId) -> bool {
        let deleted = lock(&self.tree).delete_node(key, id);
        let there = !deleted.is_empty();
        self.tell(deleted);
        there
    }

    /// Ends the session of a node, as after a time-out.
    pub(super) fn expire_session_of(&self, key: &LockKey, id: LeaseId) {
        let session = lock(&self.tree).session_of(key, id);
        session.into_iter().for_each(|session| self.close(session));
    }

    pub(super) fn keys(&self) -> Vec<LockKey> {
        lock(&self.tree).keys()
    }

    pub(super) fn changes(&self) -> broadcast::Receiver<LockKey> {
        self.changes.subscribe()
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
                // A client that is gone has no guards either.
                let _gone = owner.send(id);
            }
        }
    }

    fn changed(&self, key: &LockKey) {
        // Mostly nobody watches.
        let _nobody = self.changes.send(key.clone());
    }
}

/// The clock of the ensemble, which ends sessions.
async fn tick(server: Weak<Server>) {
    while let Some(server) = server.upgrade() {
        let overdue = lock(&server.tree).overdue(server.clock.now());
        overdue
            .into_iter()
            .for_each(|session| server.close(session));
        drop(server);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
