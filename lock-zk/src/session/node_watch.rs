//! Watches on the nodes of held locks: a holder is notified at once when its node is deleted.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use polylock_core::engine::LeaseId;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::sleep;
use zookeeper_client::{Error, EventType};

use super::locks::NodeWatch;
use super::{ZkSession, lock};
use crate::error::ZkFailure;

/// Watches the nodes of all locks of a session; ends with the session.
pub(super) async fn watch_nodes(session: Weak<ZkSession>, unwatched: Arc<Notify>) {
    let due = stream::unfold((session, unwatched), next_due).flat_map(stream::iter);
    due.for_each_concurrent(None, WatchedNode::watch).await;
}

type Unwatched = (Weak<ZkSession>, Arc<Notify>);

async fn next_due((session, unwatched): Unwatched) -> Option<(Vec<WatchedNode>, Unwatched)> {
    unwatched.notified().await;
    sleep(WATCHED_AFTER).await;
    let nodes = session.upgrade()?.begin_watches();
    Some((nodes, (session, unwatched)))
}

/// Locks that are held for less are not watched: a watch is a request, and most locks are held briefly.
const WATCHED_AFTER: Duration = Duration::from_millis(100);

/// The node of a lock that is about to be watched.
struct WatchedNode {
    session: Weak<ZkSession>,
    id: LeaseId,
    path: Arc<str>,
    _room: OwnedSemaphorePermit,
}

impl WatchedNode {
    /// It is a watch on children, which the node of a lock cannot have: it fires only at the end of
    /// the node, and not at the writes of a hand-over.
    async fn watch(self) {
        let Some(watching) = self.session.upgrade() else {
            return;
        };
        let watched = watching.client.get_and_watch_children(&self.path).await;
        let watcher = match watched {
            Ok((_, node, watcher)) if watching.owns(&node) => watcher,
            // The name is unguessable, so the client has silently got another session.
            Ok(_) => return watching.end(),
            Err(Error::NoNode) => return watching.node_gone(self.id, &self.path),
            Err(error) if ZkFailure::from(error.clone()).is_ambiguous() => {
                return watching.watch_ended(&self, NodeWatch::None);
            }
            // Whatever keeps this client from watching, it does so again.
            Err(_) => return watching.watch_ended(&self, NodeWatch::Polled),
        };
        drop(watching);
        let event = watcher.changed().await;
        let Some(session) = self.session.upgrade() else {
            return;
        };
        if event.event_type == EventType::NodeDeleted {
            session.node_gone(self.id, &self.path);
        } else {
            session.watch_ended(&self, NodeWatch::None);
        }
    }
}

impl ZkSession {
    /// The nodes of locks that have been held for a while; the others are due later.
    fn begin_watches(self: &Arc<Self>) -> Vec<WatchedNode> {
        let now = self.engine.now();
        let mut locks = lock(&self.locks);
        let (mut begun, mut is_later) = (Vec::new(), false);
        for (id, held) in locks.unwatched() {
            if now < held.since + WATCHED_AFTER {
                is_later = true;
                continue;
            }
            match self.watch_budget.for_holder(&held.path) {
                Some(_room) => {
                    held.watch = NodeWatch::Watched;
                    begun.push(WatchedNode {
                        session: Arc::downgrade(self),
                        id,
                        path: Arc::clone(&held.path),
                        _room,
                    });
                }
                None => held.watch = NodeWatch::Polled,
            }
        }
        if is_later {
            self.unwatched.notify_one();
        }
        begun
    }

    fn watch_ended(&self, node: &WatchedNode, watch: NodeWatch) {
        lock(&self.locks).watch_ended(node.id, &node.path, watch);
        self.unwatched.notify_one();
    }
}
