use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock_core::LeaseControl;
use lock_core::engine::{LeaseId, Moment};

/// A lock of a session.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) id: LeaseId,
    /// Of its node.
    pub(super) path: Arc<str>,
    pub(super) control: LeaseControl,
    since: Moment,
    watch: Watch,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Watch {
    /// Nobody watches the node yet.
    None,
    /// The node is about to get another name: under which it is there nobody knows.
    Moving,
    Watched,
}

/// The locks of a session.
#[derive(Debug, Default)]
pub(super) struct Table {
    held: HashMap<LeaseId, Held>,
    /// How many have a node that nobody watches.
    unwatched: usize,
}

/// A lock that is held for less than that is given back before its node is watched: watching is a
/// request, and most locks are held for a moment.
pub(super) const WATCHED_AFTER: Duration = Duration::from_millis(100);

impl Table {
    /// Puts a lock in, with the handle of its latest holder; true if it is the only unwatched one.
    pub(super) fn insert(
        &mut self,
        id: LeaseId,
        path: Arc<str>,
        control: LeaseControl,
        now: Moment,
    ) -> bool {
        if let Some(held) = self.held.get_mut(&id) {
            held.control = control;
            return false;
        }
        let held = Held {
            id,
            path,
            control,
            since: now,
            watch: Watch::None,
        };
        self.held.insert(id, held);
        self.unwatched += 1;
        self.unwatched == 1
    }

    pub(super) fn remove(&mut self, id: LeaseId) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.unwatched -= usize::from(held.watch == Watch::None);
        Some(held)
    }

    /// Takes a lock out, if its node is this one.
    pub(super) fn remove_at(&mut self, id: LeaseId, path: &str) -> Option<Held> {
        let is_there = self.held.get(&id).is_some_and(|held| &*held.path == path);
        is_there.then(|| self.remove(id))?
    }

    /// A lock gets a node of another name.
    pub(super) fn begin_move(&mut self, id: LeaseId, path: Arc<str>) {
        if let Some(held) = self.held.get_mut(&id) {
            held.path = path;
            self.unwatched -= usize::from(held.watch == Watch::None);
            held.watch = Watch::Moving;
        }
    }

    /// The lock has its node at the path again.
    pub(super) fn end_move(&mut self, id: LeaseId, path: Arc<str>) {
        if let Some(held) = self.held.get_mut(&id) {
            held.path = path;
            self.unwatched += usize::from(held.watch != Watch::None);
            held.watch = Watch::None;
        }
    }

    pub(super) fn all(&self) -> Vec<Held> {
        self.held.values().cloned().collect()
    }

    pub(super) fn has_unwatched(&self) -> bool {
        self.unwatched > 0
    }

    /// Those to be watched from here on.
    pub(super) fn take_unwatched(&mut self, now: Moment) -> Vec<Held> {
        if !self.has_unwatched() {
            return Vec::new();
        }
        let is_due =
            |held: &&mut Held| held.watch == Watch::None && held.since + WATCHED_AFTER <= now;
        let due: Vec<_> = self
            .held
            .values_mut()
            .filter(is_due)
            .map(|held| {
                held.watch = Watch::Watched;
                held.clone()
            })
            .collect();
        self.unwatched -= due.len();
        due
    }

    /// The watch on the node of a lock has come to nothing.
    pub(super) fn is_unwatched(&mut self, id: LeaseId, path: &str) {
        if let Some(held) = self.held.get_mut(&id)
            && &*held.path == path
            && held.watch == Watch::Watched
        {
            held.watch = Watch::None;
            self.unwatched += 1;
        }
    }
}

impl Held {
    /// Whether the node is there under its name, unless somebody has deleted it.
    pub(super) fn is_settled(&self) -> bool {
        self.watch != Watch::Moving
    }
}
