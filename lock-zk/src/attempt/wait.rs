//! How a contender waits for those before it.

use std::time::Duration;

use lock_core::engine::before;
use tokio::time::sleep;
use zookeeper_client::{Error as ClientError, OneshotWatcher};

use super::look::Seen;
use super::{Attempt, AttemptError};
use crate::node::Node;
use crate::recipe::queue_position::{Blocker, QueuePosition};

/// A watch on a node, and the evidence that it was set in time.
struct Watching {
    watcher: OneshotWatcher,
    /// The directory, where it was seen since.
    seen: Option<Seen>,
    /// What was to happen may have happened before.
    is_late: bool,
}

impl Attempt<'_> {
    /// Waits until it is worth to look again; what is seen by then, if a look was part of it.
    pub(super) async fn wait(
        &self,
        blocker: &Blocker,
        node: &Node,
    ) -> Result<Option<Seen>, AttemptError> {
        let path = self.watched_path(blocker);
        let Some(_place) = self.lease.session.watch_budget.for_waiter(&path) else {
            let pause = self.client.engine.jitter(POLL_INTERVAL / 2, POLL_INTERVAL);
            self.changed(sleep(pause)).await?;
            return Ok(None);
        };
        let until = self.budget.step();
        let watching = match self.until(until, self.watch(blocker, &path)).await? {
            Ok(watching) => watching,
            Err(ClientError::NoNode) => return Ok(None),
            Err(error) => {
                self.pause_if_ambiguous(error.into()).await?;
                return Ok(None);
            }
        };
        let seen = match watching.seen {
            None if watching.is_late => Some(self.list().await?),
            seen => seen,
        };
        if let Some(mut seen) = seen
            && self.queue_position(&mut seen, node).await? != QueuePosition::Behind(blocker.clone())
        {
            return Ok(Some(seen));
        }
        self.changed(watching.watcher.changed()).await?;
        Ok(None)
    }

    fn watched_path(&self, blocker: &Blocker) -> String {
        let directory = &self.lease.directory;
        match blocker {
            Blocker::End(name) | Blocker::EndOrPermit(name) => directory.child(name),
            Blocker::Directory => directory.path().to_owned(),
        }
    }

    async fn watch(&self, blocker: &Blocker, path: &str) -> Result<Watching, ClientError> {
        let client = &self.lease.session.client;
        let watched = match blocker {
            // A watch on children, which a contender cannot have, fires at its end and not at
            // writes.
            Blocker::End(_) => {
                let watched = client.get_and_watch_children(path).await;
                watched.map(|(_, _, watcher)| (watcher, false))
            }
            Blocker::EndOrPermit(_) => {
                let watched = client.get_and_watch_data(path).await;
                // It has its permit already, and writes no more; unless another client has written.
                watched.map(|(_, stat, watcher)| (watcher, stat.mzxid > stat.czxid))
            }
            Blocker::Directory => return self.watch_directory().await,
        };
        match watched {
            // Without the right to read a node, no watch on it fires at its end.
            Err(ClientError::NoAuth) => self.watch_directory().await,
            watched => watched.map(|(watcher, is_late)| Watching {
                watcher,
                seen: None,
                is_late,
            }),
        }
    }

    async fn watch_directory(&self) -> Result<Watching, ClientError> {
        let sent = self.client.engine.now();
        let path = self.lease.directory.path();
        let watched = self.lease.session.client.get_and_watch_children(path);
        let (names, directory, watcher) = watched.await?;
        Ok(Watching {
            watcher,
            seen: Some(Seen::new(names, &directory, sent)),
            is_late: false,
        })
    }

    /// Waits for a change, for as long as there is time and the session lasts.
    async fn changed<T>(&self, change: impl Future<Output = T>) -> Result<(), AttemptError> {
        let changed = async {
            tokio::select! {
                _ = change => Ok(()),
                () = self.lease.session.ended() => Err(AttemptError::Gone),
            }
        };
        match self.budget.deadline() {
            None => changed.await,
            Some(deadline) => before(deadline, changed)
                .await
                .unwrap_or(Err(AttemptError::Late)),
        }
    }
}

/// The poll interval of a waiter without a watch.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
