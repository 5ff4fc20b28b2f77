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
        /// When the connect request of the present connection left; `None` while disconnected.
        resumed: Option<Moment>,
    },
    Over,
}

impl ZkSessionState {
    /// There is another connection, for which the request left at `asked`. A process that was stopped
    /// since then knows by that how old the answer is.
    pub(super) fn resume(&mut self, asked: Moment) {
        if let SessionPhase::Doubted { resumed, since, .. } = &mut self.phase
            && *resumed != Some(asked)
        {
            if resumed.replace(asked).is_some() {
                // The client reports its latest state only: the connection before this one has broken as well.
                *since = asked;
                self.broke = Some(asked);
                self.evidence.broken();
            }
            self.evidence.resumed(asked);
        }
    }

    pub(super) fn broke_since(&self, moment: Moment) -> bool {
        self.broke.is_some_and(|broke| moment <= broke)
    }
}

#[cfg(test)]
mod tests {
    use lock_testkit::locks::ms;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    /// A connection that breaks while the session is in doubt, and is replaced before that is noticed.
    #[test]
    fn a_write_proves_nothing_of_the_next_connection() {
        let mut evidence = LivenessEvidence::opened(ms(14_000), at(0));
        evidence.broken();
        let mut state = ZkSessionState {
            phase: SessionPhase::Doubted {
                until: at(9_000),
                since: at(2_000),
                resumed: None,
            },
            evidence,
            broke: Some(at(2_000)),
        };
        state.resume(at(3_000));
        state.evidence.committed(at(6_000));
        let proven = state.evidence.valid_until();
        state.resume(at(6_500));
        assert!(state.broke_since(at(6_000)));
        // A leader that was replaced answers heartbeats, and commits nothing.
        for sent in [7_000, 12_000] {
            state.evidence.answered(at(sent), at(sent));
        }
        assert_eq!(state.evidence.valid_until(), proven);
        state.evidence.committed(at(12_500));
        assert!(state.evidence.valid_until() > proven);
    }
}
