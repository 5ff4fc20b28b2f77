use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::join;
use polylock_core::engine::Moment;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use zookeeper_client::{Error, Stat, StateWatcher};

use super::node_watch::watch_nodes;
use super::state::SessionPhase;
use super::{ZkSession, lock};
use crate::error::RETRY_BACKOFF;

/// Follows the state of the session, sends heartbeats and watches nodes, until the session ends or is
/// dropped.
pub(super) async fn send_heartbeats(
    session: Weak<ZkSession>,
    mut states: StateWatcher,
    unwatched: Arc<Notify>,
) {
    // They outlive an iteration of the loop, so that a late reply still counts.
    let mut heart = pin!(heartbeat(&session, Instant::now()));
    let mut watches = pin!(watch_nodes(Weak::clone(&session), unwatched));
    // The first connection is the one that opened the session.
    let mut responses = 1;
    loop {
        tokio::select! {
            biased;
            state = states.changed() => {
                let Some(current) = session.upgrade() else { return };
                let Some(pause) = current.follow(state, &mut responses) else { return };
                // What was asked on the other connection may hang; the next one looks at the nodes.
                heart.set(heartbeat(&session, Instant::now() + pause));
            }
            goes_on = &mut heart => {
                let Some(beat) = goes_on else { return };
                heart.set(heartbeat(&session, Instant::now() + beat));
            }
            () = &mut watches => return,
        }
    }
}

/// Sends a heartbeat; returns the time until the next one, or `None` if the session is over or
/// dropped.
async fn heartbeat(session: &Weak<ZkSession>, at: Instant) -> Option<Duration> {
    sleep_until(at).await;
    let session = session.upgrade().filter(|session| !session.is_over())?;
    let sent = session.engine.now();
    let is_answered = if session.is_doubted() {
        if session.is_moving() {
            // The nodes are checked only when no downgrade is in progress.
            return Some(RETRY_BACKOFF);
        }
        session.look_at_nodes().await
    } else {
        let polled = lock(&session.locks).polled();
        let is_known = |node: &Stat| session.owns(node);
        let (beaten, seen) = join!(session.beat(), session.look_at_each(&polled, is_known));
        beaten && seen
    };
    if is_answered {
        session.answered(sent);
    }
    Some(session.state().evidence.beat())
}

impl ZkSession {
    /// Asks the leader, and a majority of the servers where locks depend on it; false if there is no
    /// answer.
    ///
    /// A server that has lost its leader would answer a read, and a leader that has lost its followers
    /// would answer a `sync`.
    pub(super) async fn beat(&self) -> bool {
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

    /// Whether locks depend on a write that is yet to be committed.
    fn needs_write(&self) -> bool {
        let state = self.state();
        state.evidence.needs_write(self.engine.now()) && !lock(&self.locks).is_empty()
    }

    /// The leader has answered a heartbeat that left at `sent`, after all nodes were seen if they were in
    /// doubt.
    fn answered(&self, sent: Moment) {
        let mut state = self.state();
        match state.phase {
            SessionPhase::Over => return,
            // What was asked on the connection that broke says nothing of this one.
            SessionPhase::Doubted { since, .. } if sent <= since => return,
            SessionPhase::Doubted { .. } => {
                state.resume(self.negotiated.asked());
                if state.broke_since(sent) {
                    return;
                }
            }
            SessionPhase::Connected => {}
        }
        state.phase = SessionPhase::Connected;
        state.evidence.answered(sent, self.engine.now());
        self.limit(state.evidence.valid_until());
    }
}
