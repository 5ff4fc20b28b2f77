use std::sync::Weak;

use zookeeper_client::{Error, EventType};

use super::locks::Held;
use super::watch_budget::Watching;
use super::{Session, lock};
use crate::error::Failure;

/// Watches the node of a lock, so that its holder is notified at once of its deletion.
///
/// It is a watch on children, which the node of a lock cannot have: it fires only at the end of the
/// node, and not at the writes of a hand-over.
pub(super) async fn watch(session: Weak<Session>, held: Held, _place: Watching) {
    let Some(watching) = session.upgrade() else {
        return;
    };
    let watched = watching.client.get_and_watch_children(&held.path).await;
    let watcher = match watched {
        Ok((_, node, watcher)) if watching.owns(&node) => watcher,
        // Its name is unguessable: the session was exchanged without a word.
        Ok(_) => return watching.end(),
        Err(Error::NoNode) => return watching.node_gone(held.id, &held.path),
        Err(error) if Failure::from(error.clone()).is_ambiguous() => {
            return watching.is_unwatched(&held);
        }
        // Whatever keeps this client from watching, it does so again.
        Err(_) => return lock(&watching.held).look_at(held.id, &held.path),
    };
    drop(watching);
    let event = watcher.changed().await;
    let Some(session) = session.upgrade() else {
        return;
    };
    if event.event_type == EventType::NodeDeleted {
        session.node_gone(held.id, &held.path);
    } else {
        session.is_unwatched(&held);
    }
}

impl Session {
    fn is_unwatched(&self, held: &Held) {
        lock(&self.held).is_unwatched(held.id, &held.path);
        self.unwatched.notify_one();
    }
}
