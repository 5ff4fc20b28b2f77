//! The arithmetic of a session: until when its locks are held. Pure.
//!
//! The leader ends a session one time-out after it learned last that its client lives. A server tells
//! it with each of the leader's pings, twice in a tick, and answers reads for many ticks after it has
//! lost its leader. So a heartbeat is a `sync`, which the leader answers; and what counts is not the
//! moment of that heartbeat but of an earlier one, of which the leader has been told by then: at most
//! half a tick lies between two pings, and a time-out is two ticks at least.

use std::collections::VecDeque;
use std::time::Duration;

use lock_core::engine::Moment;

/// Durations that follow from the session time-out that was negotiated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct SessionTerms {
    timeout: Duration,
    /// Longest time that taking the session to another connection takes from its request on.
    resumption: Duration,
}

impl SessionTerms {
    pub(super) fn new(timeout: Duration, resumption: Duration) -> Self {
        Self {
            timeout,
            resumption,
        }
    }

    /// Until when the locks are held if the leader knows that the client lived at `known`.
    fn valid_until(self, known: Moment) -> Moment {
        known + self.timeout - self.timeout / 16
    }

    /// Until when they are held once the connection has broken, at `now`.
    pub(super) fn doubted_until(self, now: Moment, valid_until: Moment) -> Moment {
        (now + self.timeout / 2).min(valid_until)
    }

    /// Until when an answer is worth to be relied on anew.
    pub(super) fn recent_until(self, sent: Moment) -> Moment {
        sent + self.timeout / 2
    }

    /// Time between two heartbeats.
    pub(super) fn beat(self) -> Duration {
        self.timeout / 7
    }

    /// After which the leader has been told of a heartbeat that its server has answered. Two heartbeats
    /// that are answered at once are as far from each other.
    fn told_within(self) -> Duration {
        self.timeout * 2 / 7
    }

    /// Time between two looks at the clock while there is no connection.
    pub(super) fn tick(self) -> Duration {
        self.timeout / 16
    }

    /// Whether the process has been stopped since the clock was looked at last.
    pub(super) fn has_slept(self, looked: Moment, now: Moment) -> bool {
        now.since(looked) > self.timeout / 8
    }
}

/// What is known of what the leader knows.
#[derive(Clone, Debug)]
pub(super) struct Proofs {
    terms: SessionTerms,
    /// A moment at which the client lived, for all that the leader knows at least.
    known: Moment,
    /// The heartbeats that were answered since, of whom it may not know yet.
    answered: VecDeque<Beat>,
}

/// A heartbeat that was answered.
#[derive(Clone, Copy, Debug)]
struct Beat {
    sent: Moment,
    answered: Moment,
}

impl Proofs {
    /// The leader itself opens a session; the request for it left at `sent`.
    pub(super) fn opened(terms: SessionTerms, sent: Moment) -> Self {
        Self {
            terms,
            known: sent,
            answered: VecDeque::new(),
        }
    }

    /// A connection that broke at `since` has a successor, by `now`: the leader was asked whether the
    /// session lives.
    pub(super) fn resumed(&mut self, since: Moment, now: Moment) {
        let earliest = now - self.terms.resumption;
        self.know(since.max(earliest));
    }

    /// The leader has answered, by `answered`, a heartbeat that left at `sent`.
    pub(super) fn answered(&mut self, sent: Moment, answered: Moment) {
        self.answered.push_back(Beat { sent, answered });
        while let Some(earlier) = self.answered.front().copied() {
            if sent.since(earlier.answered) < self.terms.told_within() {
                break;
            }
            self.answered.pop_front();
            self.know(earlier.sent);
        }
    }

    /// The heartbeats of a connection that is broken may never be told of.
    pub(super) fn broken(&mut self) {
        self.answered.clear();
    }

    pub(super) fn valid_until(&self) -> Moment {
        self.terms.valid_until(self.known)
    }

    fn know(&mut self, moment: Moment) {
        self.known = self.known.max(moment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A heartbeat leaves every 2 s, and locks are held for 13,125 ms after what the leader knows.
    fn terms() -> SessionTerms {
        SessionTerms::new(ms(14_000), ms(6_300))
    }

    const HELD: u64 = 13_125;

    #[test]
    fn a_heartbeat_proves_what_the_leader_has_been_told_of_by_then() {
        let mut proofs = Proofs::opened(terms(), at(0));
        assert_eq!(proofs.valid_until(), at(HELD));
        for (sent, known) in [(2_000, 0), (4_000, 0), (6_000, 2_000), (8_000, 4_000)] {
            proofs.answered(at(sent), at(sent));
            assert_eq!(proofs.valid_until(), at(known + HELD), "after {sent}");
        }
        // One that comes after a pause proves what was before the pause, and that is old.
        proofs.answered(at(17_900), at(17_900));
        assert_eq!(proofs.valid_until(), at(8_000 + HELD));
    }

    #[test]
    fn of_one_that_was_long_under_way_the_leader_is_told_later() {
        let mut proofs = Proofs::opened(terms(), at(0));
        proofs.answered(at(1_000), at(4_000));
        proofs.answered(at(6_000), at(6_000));
        assert_eq!(proofs.valid_until(), at(HELD));
        proofs.answered(at(8_000), at(8_000));
        assert_eq!(proofs.valid_until(), at(1_000 + HELD));
    }

    #[test]
    fn another_connection_is_known_to_the_leader_itself() {
        let mut proofs = Proofs::opened(terms(), at(0));
        proofs.answered(at(2_000), at(2_000));
        proofs.broken();
        proofs.resumed(at(3_000), at(3_500));
        assert_eq!(proofs.valid_until(), at(3_000 + HELD));
        // After a long outage the session was asked for somewhere within the last attempt.
        proofs.broken();
        proofs.resumed(at(4_000), at(14_000));
        assert_eq!(proofs.valid_until(), at(14_000 - 6_300 + HELD));
        proofs.answered(at(14_000), at(14_000));
        proofs.answered(at(18_000), at(18_000));
        assert_eq!(proofs.valid_until(), at(14_000 + HELD));
    }

    #[test]
    fn a_lock_is_lost_half_a_time_out_after_a_disconnect() {
        let terms = terms();
        assert_eq!(terms.doubted_until(at(1_500), at(16_000)), at(8_500));
        // After a long silence, what the leader was told of last counts.
        assert_eq!(terms.doubted_until(at(9_500), at(16_000)), at(16_000));
    }

    #[test]
    fn heartbeats_that_are_answered_leave_half_a_time_out_at_least() {
        let terms = terms();
        // The first one leaves at once.
        let mut proofs = Proofs::opened(terms, at(0));
        let mut next = at(0);
        for _ in 0..100 {
            let answered = next + ms(30);
            let left = proofs.valid_until().since(answered);
            assert!(left >= terms.timeout / 2, "{left:?}");
            proofs.answered(next, answered);
            next = answered + terms.beat();
        }
    }

    #[test]
    fn a_session_that_took_long_to_open_lasts_until_heartbeats_prove_it() {
        let terms = terms();
        let opened = at(100_000);
        // The request for it left as early as can be.
        let mut proofs = Proofs::opened(terms, opened - terms.resumption);
        let mut next = opened;
        for _ in 0..10 {
            let answered = next + ms(30);
            assert!(proofs.valid_until() > answered + ms(2_000));
            proofs.answered(next, answered);
            next = answered + terms.beat();
        }
    }
}
