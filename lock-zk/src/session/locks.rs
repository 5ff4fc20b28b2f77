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
    /// The node is not watched yet.
    None,
    /// The node is about to get another name: its present name is unknown.
    Moving,
    Watched,
    /// It cannot be watched, and is looked at with each heartbeat.
    LookedAt,
    /// The node is gone, and its holder was notified.
    Gone,
}

/// The locks of a session.
#[derive(Debug, Default)]
pub(super) struct Table {
    held: HashMap<LeaseId, Held>,
    /// How many nodes are not watched.
    unwatched: usize,
}

/// Locks that are held shorter are released before their node is watched: watching is a request,
/// and most locks are held for a moment.
pub(super) const WATCHED_AFTER: Duration = Duration::from_millis(100);

/// What comes of putting a lock in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Inserted {
    /// The first node that is not watched.
    FirstUnwatched,
    Known,
    /// Its node is gone already.
    Gone,
}

impl Table {
    /// Puts a lock in, with the handle of its latest holder.
    pub(super) fn insert(
        &mut self,
        id: LeaseId,
        path: Arc<str>,
        control: LeaseControl,
        now: Moment,
    ) -> Inserted {
        if let Some(held) = self.held.get_mut(&id) {
            held.control = control;
            return match held.watch {
                // A report to a former holder concerns its successor.
                Watch::Gone => Inserted::Gone,
                _ => Inserted::Known,
            };
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
        match self.unwatched {
            1 => Inserted::FirstUnwatched,
            _ => Inserted::Known,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn has(&self, id: LeaseId) -> bool {
        self.held.contains_key(&id)
    }

    pub(super) fn remove(&mut self, id: LeaseId) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.unwatched -= usize::from(held.watch == Watch::None);
        Some(held)
    }

    /// The node at the path is gone; the lock that had it, if its holder was not notified.
    pub(super) fn gone(&mut self, id: LeaseId, path: &str) -> Option<Held> {
        let held = self.held.get_mut(&id).filter(|held| &*held.path == path)?;
        let was = std::mem::replace(&mut held.watch, Watch::Gone);
        self.unwatched -= usize::from(was == Watch::None);
        (was != Watch::Gone).then(|| held.clone())
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
        if let Some(held) = self.held.get_mut(&id)
            && held.watch != Watch::Gone
        {
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

    /// The watch on the node of a lock has come to nothing, and may be set again.
    pub(super) fn is_unwatched(&mut self, id: LeaseId, path: &str) {
        self.change_watch(id, path, Watch::None);
    }

    /// The node of a lock cannot be watched.
    pub(super) fn look_at(&mut self, id: LeaseId, path: &str) {
        self.change_watch(id, path, Watch::LookedAt);
    }

    fn change_watch(&mut self, id: LeaseId, path: &str, watch: Watch) {
        if let Some(held) = self.held.get_mut(&id)
            && &*held.path == path
            && held.watch == Watch::Watched
        {
            held.watch = watch;
            self.unwatched += usize::from(watch == Watch::None);
        }
    }

    /// Those that are looked at with each heartbeat.
    pub(super) fn looked_at(&self) -> Vec<Held> {
        let is_one = |held: &&Held| held.watch == Watch::LookedAt;
        self.held.values().filter(is_one).cloned().collect()
    }

    /// The locks with a known node, unless it was deleted.
    pub(super) fn settled(&self) -> Vec<Held> {
        let is_one = |held: &&Held| !matches!(held.watch, Watch::Moving | Watch::Gone);
        self.held.values().filter(is_one).cloned().collect()
    }
}
