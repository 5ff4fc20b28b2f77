use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use lock_core::engine::Moment;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use zookeeper_client::{SessionState, StateWatcher};

use super::held::{Held, WATCHED_AFTER};
use super::{Session, lock, sentry};

/// Listens to what the client tells of its session, sends heartbeats and has nodes watched, until the
/// session ends or nobody has it any more.
pub(super) async fn keep(session: Weak<Session>, mut states: StateWatcher, unwatched: Arc<Notify>) {
    let Some(beat) = session.upgrade().map(|session| session.terms.beat()) else {
        return;
    };
    let mut next = Instant::now() + beat;
    let mut look_at: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            state = states.changed() => {
                let Some(session) = session.upgrade() else { return };
                match state {
                    SessionState::Disconnected => session.disconnected(),
                    // The heartbeat now due looks at the nodes.
                    SessionState::SyncConnected | SessionState::ConnectedReadOnly => {
                        next = Instant::now();
                    }
                    _ => return session.end(),
                }
            }
            // One that hangs is dropped when the client finds out that it is disconnected.
            goes_on = heartbeat(&session, next) => {
                if !goes_on {
                    return;
                }
                next = Instant::now() + beat;
            }
            () = unwatched.notified(), if look_at.is_none() => {
                look_at = Some(Instant::now() + WATCHED_AFTER);
            }
            () = sleep_until(look_at.unwrap_or(next)), if look_at.is_some() => {
                let Some(session) = session.upgrade() else { return };
                let is_done = session.watch_nodes();
                look_at = (!is_done).then(|| Instant::now() + WATCHED_AFTER);
            }
        }
    }
}

/// Sends a heartbeat at the moment; false if the session is over or nobody has it any more.
async fn heartbeat(session: &Weak<Session>, at: Instant) -> bool {
    sleep_until(at).await;
    let Some(session) = session.upgrade().filter(|session| !session.is_over()) else {
        return false;
    };
    let sent = session.engine.now();
    if session.is_doubted() {
        session.look_at_nodes(sent).await;
    } else if session.client.check_stat("/").await.is_ok() {
        session.proven(sent);
    }
    true
}

impl Session {
    /// Looks for the nodes of all locks; if there is an answer for each, none is in doubt any more.
    async fn look_at_nodes(&self, sent: Moment) {
        let mut locks = self.locks();
        locks.retain(Held::is_settled);
        let root = self.client.check_stat("/");
        let looks = locks.iter().map(|held| self.client.check_stat(&held.path));
        let (root, seen) = futures_util::join!(root, join_all(looks));
        let mut is_answered = root.is_ok();
        for (held, seen) in locks.iter().zip(seen) {
            match seen {
                Ok(Some(node)) if self.owns(&node) => {}
                Ok(Some(_)) => return self.end(),
                Ok(None) => self.node_gone(held.id, &held.path),
                Err(_) => is_answered = false,
            }
        }
        if is_answered {
            self.confirmed(sent);
        }
    }

    /// Watches the nodes of locks that are held for a while; true if none are left to be watched.
    fn watch_nodes(self: &Arc<Self>) -> bool {
        let now = self.engine.now();
        let mut table = lock(&self.held);
        for held in table.take_unwatched(now) {
            self.engine
                .spawn_service(sentry::watch(Arc::downgrade(self), held));
        }
        !table.has_unwatched()
    }
}
