use std::collections::HashMap;
use std::sync::Arc;

use polylock_core::LeaseControl;
use polylock_core::engine::{LeaseId, Moment};

/// The locks of a session.
#[derive(Debug, Default)]
pub(super) struct SessionLocks(HashMap<LeaseId, SessionLock>);

/// A lock and its node.
#[derive(Clone, Debug)]
pub(super) struct SessionLock {
    /// Of its node.
    pub(super) path: Arc<str>,
    pub(super) control: LeaseControl,
    pub(super) since: Moment,
    pub(super) watch: NodeWatch,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NodeWatch {
    /// The node is gone, and its holder was notified.
    Gone,
    /// The node is about to get another name: its present name is unknown.
    Moving,
    /// The node is not watched yet.
    None,
    /// The node cannot be watched, and is looked at with each heartbeat.
    Polled,
    Watched,
}

impl SessionLocks {
    /// Puts a lock in, with the handle of its latest holder; false if its node is gone already.
    pub(super) fn insert(
        &mut self,
        id: LeaseId,
        path: Arc<str>,
        control: LeaseControl,
        now: Moment,
    ) -> bool {
        if let Some(held) = self.0.get_mut(&id) {
            held.control = control;
            // A report to a former holder concerns its successor.
            return held.watch != NodeWatch::Gone;
        }
        let watch = NodeWatch::None;
        let held = SessionLock {
            path,
            control,
            since: now,
            watch,
        };
        self.0.insert(id, held);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, id: LeaseId) -> bool {
        self.0.contains_key(&id)
    }

    pub(super) fn remove(&mut self, id: LeaseId) {
        self.0.remove(&id);
    }

    /// The handles of all holders: a copy, for a lock may leave when its holder is notified.
    pub(super) fn controls(&self) -> Vec<LeaseControl> {
        self.0.values().map(|held| held.control.clone()).collect()
    }

    /// The handle of the holder of a lock.
    pub(super) fn control(&self, id: LeaseId) -> Option<LeaseControl> {
        Some(self.0.get(&id)?.control.clone())
    }

    /// The node at the path is gone; the holder of its lock, unless it was notified.
    pub(super) fn gone(&mut self, id: LeaseId, path: &str) -> Option<LeaseControl> {
        let held = self.0.get_mut(&id).filter(|held| &*held.path == path)?;
        let was = std::mem::replace(&mut held.watch, NodeWatch::Gone);
        (was != NodeWatch::Gone).then(|| held.control.clone())
    }

    /// The lock has its node at the path from now on, or is about to, unless its node is gone; the
    /// handle of its holder.
    pub(super) fn set_node(
        &mut self,
        id: LeaseId,
        path: Arc<str>,
        watch: NodeWatch,
    ) -> Option<LeaseControl> {
        let held = self.0.get_mut(&id)?;
        if held.watch != NodeWatch::Gone {
            (held.path, held.watch) = (path, watch);
        }
        Some(held.control.clone())
    }

    /// The locks with nodes that are not watched yet.
    pub(super) fn unwatched(&mut self) -> impl Iterator<Item = (LeaseId, &mut SessionLock)> {
        let locks = self.0.iter_mut().map(|(id, held)| (*id, held));
        locks.filter(|(_, held)| held.watch == NodeWatch::None)
    }

    /// The watch on the node of a lock has come to nothing.
    pub(super) fn watch_ended(&mut self, id: LeaseId, path: &str, watch: NodeWatch) {
        if let Some(held) = self.0.get_mut(&id)
            && &*held.path == path
            && held.watch == NodeWatch::Watched
        {
            held.watch = watch;
        }
    }

    /// Ids and nodes of the locks that are looked at with each heartbeat.
    pub(super) fn polled(&self) -> Vec<(LeaseId, Arc<str>)> {
        self.nodes(|watch| watch == NodeWatch::Polled)
    }

    /// The handles of the holders whose node is about to get another name.
    pub(super) fn moving(&self) -> Vec<LeaseControl> {
        let locks = self.0.values();
        let moving = locks.filter(|held| held.watch == NodeWatch::Moving);
        moving.map(|held| held.control.clone()).collect()
    }

    /// Ids and nodes of the locks with a known node, unless it was deleted.
    pub(super) fn settled(&self) -> Vec<(LeaseId, Arc<str>)> {
        self.nodes(|watch| !matches!(watch, NodeWatch::Moving | NodeWatch::Gone))
    }

    fn nodes(&self, is_one: impl Fn(NodeWatch) -> bool) -> Vec<(LeaseId, Arc<str>)> {
        let locks = self.0.iter().filter(|(_, held)| is_one(held.watch));
        locks
            .map(|(id, held)| (*id, Arc::clone(&held.path)))
            .collect()
    }
}
