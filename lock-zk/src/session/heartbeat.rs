use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::join;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use zookeeper_client::{Error, SessionState, StateWatcher};

use super::locks::{Held, WATCHED_AFTER};
use super::{Session, lock, node_watch};

/// Follows the state of the session, sends heartbeats and has nodes watched, until the session ends
/// or is dropped.
pub(super) async fn send_heartbeats(
    session: Weak<Session>,
    mut states: StateWatcher,
    unwatched: Arc<Notify>,
) {
    // Lasts over the turns of the loop: an answer that comes late is an answer.
    let mut heart = pin!(heartbeat(&session, Instant::now()));
    // Moments, and no sleeps that every turn of the loop would begin again.
    let (mut look_at, mut clock_at): (Option<Instant>, Option<Instant>) = (None, None);
    // The first connection is the one that opened the session.
    let mut heard = 1;
    loop {
        tokio::select! {
            biased;
            state = states.changed() => {
                let Some(told) = session.upgrade() else { return };
                let is_connected = match state {
                    SessionState::Disconnected => {
                        told.disconnected();
                        false
                    }
                    SessionState::SyncConnected | SessionState::ConnectedReadOnly => {
                        if told.is_renegotiated_unheard(&mut heard) {
                            return told.end();
                        }
                        told.resumed();
                        true
                    }
                    _ => return told.end(),
                };
                let timing = told.timing();
                clock_at = (!is_connected).then(|| Instant::now() + timing.tick());
                // What was asked on the other connection may hang; the next one looks at the nodes.
                let pause = if is_connected { Duration::ZERO } else { timing.beat() };
                heart.set(heartbeat(&session, Instant::now() + pause));
            }
            () = sleep_until(clock_at.unwrap_or_else(Instant::now)), if clock_at.is_some() => {
                let Some(session) = session.upgrade() else { return };
                session.check_clock();
                clock_at = Some(Instant::now() + session.timing().tick());
            }
            goes_on = &mut heart => {
                let Some(beat) = goes_on else { return };
                heart.set(heartbeat(&session, Instant::now() + beat));
            }
            () = unwatched.notified(), if look_at.is_none() => {
                look_at = Some(Instant::now() + WATCHED_AFTER);
            }
            () = sleep_until(look_at.unwrap_or_else(Instant::now)), if look_at.is_some() => {
                let Some(session) = session.upgrade() else { return };
                let is_done = session.watch_nodes();
                look_at = (!is_done).then(|| Instant::now() + WATCHED_AFTER);
            }
        }
    }
}

/// Sends a heartbeat; returns the time until the next one, or `None` if the session is over or
/// dropped.
async fn heartbeat(session: &Weak<Session>, at: Instant) -> Option<Duration> {
    sleep_until(at).await;
    let session = session.upgrade().filter(|session| !session.is_over())?;
    let sent = session.engine.now();
    let is_answered = if session.is_doubted() {
        let locks = lock(&session.held).settled();
        session.look_at_nodes(&locks).await
    } else {
        let locks = lock(&session.held).looked_at();
        let (beaten, seen) = join!(session.beat(), session.look_at_each(&locks));
        beaten && seen
    };
    if is_answered {
        session.answered(sent);
    }
    Some(session.timing().beat())
}

impl Session {
    /// Asks the leader, and a majority of the servers where locks depend on it; false if there is no
    /// answer.
    ///
    /// A read would be answered by a server that has lost its leader, and a `sync` by a leader that has
    /// lost its followers.
    async fn beat(&self) -> bool {
        if !self.needs_write() {
            return self.client.sync("/").await.is_ok();
        }
        match self.prove().await {
            // The root is gone with all nodes: they are watched, and the leader has answered.
            Ok(()) | Err(Error::NoNode) => true,
            Err(error) => {
                tracing::debug!(%error, "a heartbeat is not committed");
                false
            }
        }
    }

    /// Looks for the nodes of these locks, as the leader has them; false if there is no answer.
    ///
    /// It asks for the nodes of the connection's session, and not for the owner of a node: the
    /// client may have been given another session unnoticed, while the nodes of the old one still
    /// exist.
    async fn look_at_nodes(&self, locks: &[Held]) -> bool {
        // The list leaves behind the heartbeat, and is as new as that.
        let (is_beaten, listed) = join!(self.beat(), self.client.list_ephemerals("/"));
        match listed {
            Ok(paths) if is_beaten => {
                let there: HashSet<&str> = paths.iter().map(String::as_str).collect();
                let missing = locks.iter().filter(|held| !there.contains(&*held.path));
                let missing: Vec<_> = missing.cloned().collect();
                self.look_for_missing(&missing).await
            }
            // Servers before 3.6.
            Err(Error::Unimplemented) if is_beaten => self.look_at_each(locks).await,
            _ => false,
        }
    }

    /// Looks for nodes that the session of the connection does not have.
    async fn look_for_missing(&self, locks: &[Held]) -> bool {
        let looks = locks.iter().map(|held| self.client.check_stat(&held.path));
        let mut is_answered = true;
        for (held, seen) in locks.iter().zip(join_all(looks).await) {
            match seen {
                Ok(None) => self.node_gone(held.id, &held.path),
                Ok(Some(_)) => self.end(),
                Err(_) => is_answered = false,
            }
        }
        is_answered
    }

    /// Looks for the node of each of these locks.
    async fn look_at_each(&self, locks: &[Held]) -> bool {
        let looks = locks.iter().map(|held| self.client.check_stat(&held.path));
        let mut is_answered = true;
        for (held, seen) in locks.iter().zip(join_all(looks).await) {
            match seen {
                Ok(Some(node)) if self.owns(&node) => {}
                Ok(Some(_)) => self.end(),
                Ok(None) => self.node_gone(held.id, &held.path),
                Err(_) => is_answered = false,
            }
        }
        is_answered
    }

    /// Watches the nodes of locks that are held for a while; true if none are left to be watched.
    fn watch_nodes(self: &Arc<Self>) -> bool {
        let now = self.engine.now();
        let mut table = lock(&self.held);
        for held in table.take_unwatched(now) {
            match self.watches.for_holder(&held.path) {
                Some(place) => {
                    let watch = node_watch::watch(Arc::downgrade(self), held, place);
                    self.engine.spawn_service(watch);
                }
                None => table.look_at(held.id, &held.path),
            }
        }
        !table.has_unwatched()
    }
}
