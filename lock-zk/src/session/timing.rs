//! The arithmetic of a session: until when its locks are held. Pure.
//!
//! The leader that serves the session ends it one timeout after its last evidence that the client
//! lives. Servers report clients to the leader with its pings, twice per tick, so the leader does not know
//! the latest heartbeat but an earlier, reported one. At most half a tick lies between two pings, and a
//! timeout is two ticks at least.
//!
//! Another leader gives each session a whole timeout from its own start. A write that is committed
//! proves that no other one had started when it left: the majority that stored it has a server in
//! common with the majority that another leader needs, and that server stored it before it followed
//! the other one. An answer that needs no majority proves nothing: a leader that has lost its
//! followers gives it for up to `syncLimit` ticks.
//!
//! So the session lasts for one timeout after the earlier of two moments: when the client lived
//! according to the reports to the leader behind the connection, and when the last write left that
//! was committed on that same connection. All answers on one connection come from one leader, for a
//! server that changes its leader closes its connections.

use std::collections::VecDeque;
use std::time::Duration;

use polylock_core::engine::{Moment, is_mutant};

/// What is known of the moment from which on the session lasts for one timeout.
#[derive(Clone, Debug)]
pub(super) struct LivenessEvidence {
    /// The session timeout that was negotiated, the smallest of all connections.
    timeout: Duration,
    /// No leader ends the session before one timeout after it.
    known: Moment,
    /// A moment at which the client lived according to the reports to the leader behind this
    /// connection; `None` before the first heartbeat on it.
    reported: Option<Moment>,
    /// When the last write left that was committed on this connection.
    committed: Option<Moment>,
    /// The heartbeats that were answered since, which the leader may not know yet.
    answered: VecDeque<Beat>,
    needs_quorum: bool,
}

/// A heartbeat that was answered.
#[derive(Clone, Copy, Debug)]
struct Beat {
    sent: Moment,
    answered: Moment,
}

impl LivenessEvidence {
    /// A leader opens a session by a write that is committed; the request for it left at `sent`.
    pub(super) fn opened(timeout: Duration, sent: Moment) -> Self {
        Self {
            timeout,
            known: sent,
            reported: Some(sent),
            committed: Some(sent),
            answered: VecDeque::new(),
            needs_quorum: !is_mutant("zookeeper-heartbeat"),
        }
    }

    /// A server has granted this timeout for another connection.
    pub(super) fn shorten(&mut self, timeout: Duration) {
        self.timeout = self.timeout.min(timeout);
    }

    /// Time between two heartbeats.
    pub(super) fn beat(&self) -> Duration {
        self.timeout / 7
    }

    /// After this time, a heartbeat that its server has answered was reported to the leader. Two
    /// heartbeats that are answered at once are as far from each other.
    fn report_delay(&self) -> Duration {
        self.timeout * 2 / 7
    }

    /// Until when the locks are held if no leader ends the session within one timeout after `known`.
    /// The rest is for clocks that run at different rates.
    fn held_until(&self, known: Moment) -> Moment {
        known + self.timeout - self.timeout / 16
    }

    /// The end of the locks after the connection broke at `broke`: half a timeout later, at most
    /// `valid_until`.
    pub(super) fn doubted_until(&self, broke: Moment, valid_until: Moment) -> Moment {
        (broke + self.timeout / 2).min(valid_until)
    }

    /// Until when a reply is recent enough to rely on it.
    pub(super) fn recent_until(&self, sent: Moment) -> Moment {
        sent + self.timeout / 2
    }

    /// There is another connection, whose leader was asked whether the session lives by a request that
    /// left at `asked`.
    pub(super) fn resumed(&mut self, asked: Moment) {
        self.report(asked);
        self.settle();
    }

    /// The leader has answered, by `answered`, a heartbeat that left at `sent`.
    pub(super) fn answered(&mut self, sent: Moment, answered: Moment) {
        self.answered.push_back(Beat { sent, answered });
        while let Some(earlier) = self.answered.front().copied() {
            if sent.since(earlier.answered) < self.report_delay() {
                break;
            }
            self.answered.pop_front();
            self.report(earlier.sent);
        }
        self.settle();
    }

    /// A write that left at `sent` has been committed, on this connection.
    pub(super) fn committed(&mut self, sent: Moment) {
        self.committed = self.committed.max(Some(sent));
        self.settle();
    }

    /// Whether a write would prove more than the last committed one: one that is younger than the
    /// last report to the leader would not.
    pub(super) fn needs_write(&self, now: Moment) -> bool {
        let is_old = |sent| now.since(sent) >= self.report_delay();
        self.needs_quorum && self.committed.is_none_or(is_old)
    }

    /// Whether a lock that is granted now may be lost before heartbeats prove more, although a write would
    /// prove more at once. A session that only waits commits none.
    pub(super) fn is_too_old(&self, now: Moment) -> bool {
        let is_short = self.valid_until() < now + self.timeout / 2;
        is_short && self.needs_write(now) && self.reported > Some(self.known)
    }

    /// What was asked on a connection that is broken says nothing of the next one.
    pub(super) fn broken(&mut self) {
        self.answered.clear();
        self.reported = None;
        self.committed = None;
    }

    pub(super) fn valid_until(&self) -> Moment {
        self.held_until(self.known)
    }

    /// Until when the session lasts for the leader behind the connection, whether others have replaced
    /// it or not: it counts by the timeout of that connection.
    pub(super) fn reported_until(&self) -> Moment {
        self.held_until(self.reported.unwrap_or(self.known))
    }

    fn report(&mut self, moment: Moment) {
        self.reported = self.reported.max(Some(moment));
    }

    fn settle(&mut self) {
        let committed = match self.needs_quorum {
            true => self.committed,
            false => self.reported,
        };
        if let (Some(reported), Some(committed)) = (self.reported, committed) {
            self.known = self.known.max(reported.min(committed));
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_testkit::locks::ms;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    /// A heartbeat leaves every 2 s, and locks are held for 13,125 ms after what the leader knows.
    fn opened(sent: Moment) -> LivenessEvidence {
        LivenessEvidence::opened(ms(14_000), sent)
    }

    const HELD: u64 = 13_125;

    impl LivenessEvidence {
        /// A heartbeat that is a write.
        fn written(&mut self, sent: Moment, answered: Moment) {
            self.committed(sent);
            self.answered(sent, answered);
        }
    }

    #[test]
    fn a_heartbeat_proves_what_the_leader_has_been_told_of_by_then() {
        let mut evidence = opened(at(0));
        assert_eq!(evidence.valid_until(), at(HELD));
        for (sent, known) in [(2_000, 0), (4_000, 0), (6_000, 2_000), (8_000, 4_000)] {
            evidence.written(at(sent), at(sent));
            assert_eq!(evidence.valid_until(), at(known + HELD), "after {sent}");
        }
        // One that comes after a pause proves what was before the pause, and that is old.
        evidence.written(at(17_900), at(17_900));
        assert_eq!(evidence.valid_until(), at(8_000 + HELD));
    }

    #[test]
    fn of_one_that_was_long_under_way_the_leader_is_told_later() {
        let mut evidence = opened(at(0));
        evidence.written(at(1_000), at(4_000));
        evidence.written(at(6_000), at(6_000));
        assert_eq!(evidence.valid_until(), at(HELD));
        evidence.written(at(8_000), at(8_000));
        assert_eq!(evidence.valid_until(), at(1_000 + HELD));
    }

    #[test]
    fn another_connection_is_known_to_the_leader_itself_once_that_commits_a_write() {
        let mut evidence = opened(at(0));
        evidence.written(at(2_000), at(2_000));
        evidence.broken();
        evidence.resumed(at(3_000));
        assert_eq!(evidence.valid_until(), at(HELD));
        evidence.committed(at(3_600));
        assert_eq!(evidence.valid_until(), at(3_000 + HELD));
        // After a long outage, when the last attempt began counts.
        evidence.broken();
        evidence.resumed(at(7_700));
        evidence.written(at(14_000), at(14_000));
        assert_eq!(evidence.valid_until(), at(7_700 + HELD));
        evidence.written(at(18_000), at(18_000));
        assert_eq!(evidence.valid_until(), at(14_000 + HELD));
    }

    #[test]
    fn what_a_leader_without_a_majority_answers_proves_nothing() {
        let mut evidence = opened(at(0));
        for sent in (2_000..20_000).step_by(2_000) {
            evidence.answered(at(sent), at(sent));
            assert_eq!(evidence.valid_until(), at(HELD));
        }
        // Neither does that of one that takes the session to another connection.
        evidence.broken();
        evidence.resumed(at(20_000));
        assert_eq!(evidence.valid_until(), at(HELD));
        // A write proves only what was reported on its own connection.
        evidence.committed(at(20_500));
        assert_eq!(evidence.valid_until(), at(20_000 + HELD));
    }

    #[test]
    fn a_smaller_timeout_counts_at_once_and_for_good() {
        let mut evidence = opened(at(0));
        evidence.broken();
        evidence.shorten(ms(1_600));
        evidence.resumed(at(3_000));
        assert_eq!(evidence.valid_until(), at(1_500));
        assert_eq!(evidence.reported_until(), at(3_000 + 1_500));
        evidence.shorten(ms(14_000));
        evidence.committed(at(3_100));
        assert_eq!(evidence.valid_until(), at(3_000 + 1_500));
    }

    #[test]
    fn a_grant_after_any_wait_leaves_time_for_heartbeats() {
        for waited in (0..60_000).step_by(50) {
            let mut evidence = opened(at(0));
            // While the session only waits, its heartbeats write nothing.
            for sent in (2_000..waited).step_by(2_000) {
                evidence.answered(at(sent), at(sent));
            }
            if evidence.is_too_old(at(waited)) {
                evidence.committed(at(waited));
            }
            let left = evidence.valid_until().since(at(waited));
            assert!(left >= ms(7_000), "{left:?} after {waited} ms");
        }
    }

    #[test]
    fn every_other_heartbeat_is_a_write_and_more_would_prove_nothing() {
        let simulate = |always: bool| {
            let mut evidence = opened(at(0));
            let (mut next, mut writes, mut deadlines) = (at(2_000), 0, Vec::new());
            for _ in 0..100 {
                let answered = next + ms(30);
                if always || evidence.needs_write(next) {
                    evidence.committed(next);
                    writes += 1;
                }
                evidence.answered(next, answered);
                deadlines.push(evidence.valid_until());
                next = answered + evidence.beat();
            }
            (writes, deadlines)
        };
        let ((writes, deadlines), (_, best)) = (simulate(false), simulate(true));
        assert_eq!(writes, 50);
        assert_eq!(deadlines, best);
    }

    #[test]
    fn a_lock_is_lost_half_a_time_out_after_a_disconnect() {
        let evidence = opened(at(0));
        assert_eq!(evidence.doubted_until(at(1_500), at(16_000)), at(8_500));
        // After a long silence, the last report to the leader counts.
        assert_eq!(evidence.doubted_until(at(9_500), at(16_000)), at(16_000));
    }

    #[test]
    fn heartbeats_that_are_answered_leave_half_a_time_out_at_least() {
        // The first one leaves at once.
        let mut evidence = opened(at(0));
        let mut next = at(0);
        for _ in 0..100 {
            let answered = next + ms(30);
            let left = evidence.valid_until().since(answered);
            assert!(left >= evidence.timeout / 2, "valid for {left:?}");
            evidence.written(next, answered);
            next = answered + evidence.beat();
        }
    }

    #[test]
    fn a_session_that_took_long_to_open_lasts_until_heartbeats_prove_it() {
        let begun = at(100_000);
        let mut evidence = opened(begun - ms(6_300));
        let mut next = begun;
        for _ in 0..10 {
            let answered = next + ms(30);
            assert!(evidence.valid_until() > answered + ms(2_000));
            evidence.written(next, answered);
            next = answered + evidence.beat();
        }
    }
}
