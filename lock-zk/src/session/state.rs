//! What is known of a session: its connection, and until when it lasts.

use std::sync::MutexGuard;

use polylock_core::LostReason;
use polylock_core::engine::Moment;

use super::timing::LivenessEvidence;
use super::{ZkSession, ZkSessions, keeps_first_timeout, lock};

#[derive(Debug)]
pub(super) struct ZkSessionState {
    pub(super) phase: SessionPhase,
    pub(super) evidence: LivenessEvidence,
    /// When the connection broke last.
    pub(super) broke: Option<Moment>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SessionPhase {
    Connected,
    /// The connection broke, and the nodes must be checked before locks are beyond doubt again.
    Doubted {
        /// The deadline of the locks that were held then.
        until: Moment,
        /// When it broke.
        since: Moment,
        /// Whether there is a new connection.
        is_resumed: bool,
    },
    Over,
}

impl ZkSessionState {
    /// There is another connection, for which the request left at `asked`. A process that was stopped
    /// since then knows by that how old the answer is.
    pub(super) fn resume(&mut self, asked: Moment) {
        if let SessionPhase::Doubted { is_resumed, .. } = &mut self.phase
            && !std::mem::replace(is_resumed, true)
        {
            self.evidence.resumed(asked);
        }
    }

    pub(super) fn broke_since(&self, moment: Moment) -> bool {
        self.broke.is_some_and(|broke| moment <= broke)
    }
}

impl ZkSession {
    /// The state, by the smallest timeout that a server has granted so far.
    pub(super) fn state(&self) -> MutexGuard<'_, ZkSessionState> {
        let mut state = lock(&self.state);
        if let Some(timeout) = self
            .negotiated
            .smallest()
            .filter(|_| !keeps_first_timeout())
        {
            state.evidence.shorten(timeout);
        }
        state
    }

    /// Whether the connection has broken since.
    pub(crate) fn broke_since(&self, moment: Moment) -> bool {
        self.state().broke_since(moment)
    }

    pub(super) fn is_doubted(&self) -> bool {
        matches!(self.state().phase, SessionPhase::Doubted { .. })
    }

    pub(super) fn limit(&self, deadline: Moment) {
        let controls = lock(&self.locks).controls();
        for control in controls {
            control.limit(deadline);
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
}
