//! Handles broken connections: the session doubts its locks, resumes and checks their nodes, or ends and is
//! replaced by another session.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::join;
use polylock_core::LostReason;
use polylock_core::engine::LeaseId;
use zookeeper_client::{SessionState, Stat};

use super::state::{SessionPhase, ZkSessionState};
use super::{ZkSession, ZkSessions, keeps_first_timeout, lock};

impl ZkSession {
    /// Follows the state of the client; returns the time until the next heartbeat, or `None` if the session
    /// is over.
    pub(super) fn follow(&self, state: SessionState, responses: &mut u64) -> Option<Duration> {
        match state {
            SessionState::Disconnected => {
                self.disconnected();
                return Some(self.state().evidence.beat());
            }
            SessionState::SyncConnected | SessionState::ConnectedReadOnly
                if !self.is_timeout_unknown(responses) =>
            {
                self.resumed();
                return Some(Duration::ZERO);
            }
            _ => {}
        }
        self.end();
        None
    }

    /// Whether the present connection may have another, unreported timeout; `responses` is the number
    /// of earlier connections with a reported one.
    fn is_timeout_unknown(&self, responses: &mut u64) -> bool {
        let before = std::mem::replace(responses, self.negotiated.responses());
        *responses <= before && !keeps_first_timeout()
    }

    /// The connection is broken; the session may live on.
    fn disconnected(&self) {
        let mut state = self.state();
        let since = self.engine.now();
        let valid_until = match state.phase {
            // Those that were in doubt before that are lost by now, and others are not.
            SessionPhase::Doubted { until, .. } if since < until => until,
            SessionPhase::Connected | SessionPhase::Doubted { .. } => state.evidence.valid_until(),
            SessionPhase::Over => return,
        };
        let until = state.evidence.doubted_until(since, valid_until);
        state.evidence.broken();
        state.broke = Some(since);
        state.phase = SessionPhase::Doubted {
            until,
            since,
            resumed: None,
        };
        self.limit(until);
    }

    /// There is another connection.
    fn resumed(&self) {
        let is_missed = self.state().phase == SessionPhase::Connected;
        if is_missed {
            // The client reports its latest state only.
            self.disconnected();
        }
        let mut state = self.state();
        state.resume(self.negotiated.asked());
        let reported_until = state.evidence.reported_until();
        if let SessionPhase::Doubted { until, .. } = &mut state.phase {
            // The server may have granted less time than it takes to doubt.
            *until = (*until).min(reported_until);
            let until = *until;
            self.limit(until);
        }
    }

    /// The session is gone with all its nodes, or its state is unknown for good.
    pub(crate) fn end(&self) {
        let was = std::mem::replace(&mut self.state().phase, SessionPhase::Over);
        if was == SessionPhase::Over {
            return;
        }
        // A caller that learns of a loss and acquires the lock again gets the next session.
        ZkSessions::open_again(&self.sessions);
        self.over.send_replace(true);
        // Later callers of `attach` see that it is over.
        let (controls, nodes) = {
            let locks = lock(&self.locks);
            (locks.controls(), locks.settled())
        };
        for control in controls {
            control.lose(LostReason::SessionEnded);
        }
        // The next holder comes after the signals.
        self.delete_nodes(nodes.into_iter().map(|(_, path)| path));
    }

    /// An answer can arrive before the event of its connection.
    pub(super) fn resume_if_connected(&self, state: &mut ZkSessionState) {
        if self.client.state() == SessionState::SyncConnected {
            state.resume(self.negotiated.asked());
        }
    }

    /// Whether a held lock has a node that cannot be looked for, because it is about to get another name.
    pub(super) fn is_moving(&self) -> bool {
        // A copy: the last reference to a lease may be dropped here.
        let moving = lock(&self.locks).moving();
        moving.iter().any(|control| !control.is_over())
    }

    /// Looks for the nodes of all locks, as the leader has them; false if there is no answer.
    ///
    /// It asks for the nodes of the connection's session, and not for the owner of a node: the
    /// client may have been given another session unnoticed, while the nodes of the old one still
    /// exist.
    pub(super) async fn look_at_nodes(&self) -> bool {
        let mut nodes = lock(&self.locks).settled();
        // A request leaves when it is made. The list leaves behind the heartbeat, and is as new as that.
        let listed = async { self.client.list_ephemerals("/").await };
        let (is_beaten, listed) = join!(self.beat(), listed);
        match listed {
            Ok(paths) if is_beaten => {
                let there: HashSet<&str> = paths.iter().map(String::as_str).collect();
                nodes.retain(|(_, path)| !there.contains(&**path));
                self.look_at_each(&nodes, |_| false).await
            }
            _ => false,
        }
    }

    /// Looks for each of these nodes; false if there is no answer. A node that exists and is not
    /// `is_own` shows that the connection has another session, which ends this one.
    pub(super) async fn look_at_each(
        &self,
        nodes: &[(LeaseId, Arc<str>)],
        is_own: impl Fn(&Stat) -> bool,
    ) -> bool {
        let looks = nodes.iter().map(|(_, path)| self.client.check_stat(path));
        let mut is_answered = true;
        for ((id, path), seen) in nodes.iter().zip(join_all(looks).await) {
            match seen {
                Ok(Some(node)) if is_own(&node) => {}
                Ok(Some(_)) => self.end(),
                Ok(None) => self.node_gone(*id, path),
                Err(_) => is_answered = false,
            }
        }
        is_answered
    }
}
