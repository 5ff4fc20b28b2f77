//! What is known of a session: its connection, and until when it lasts.

use polylock_core::engine::Moment;

use super::timing::LivenessEvidence;

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
