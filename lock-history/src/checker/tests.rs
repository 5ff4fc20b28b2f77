//! Every kind of violation is found, and a slow judge agrees with the quick one.

mod naive;
mod random;

use std::num::NonZeroU32;

use super::*;
use crate::event::What;

/// Builds a history of one key by hand.
#[derive(Clone, Debug, Default)]
struct Story(Vec<HistoryEvent>);

impl Story {
    fn tell(mut self, at: u64, attempt: u64, what: What) -> Self {
        let seq = self.0.len() as u64;
        let mut event = HistoryEvent::new(at, "k", attempt, what);
        event.seq = seq;
        self.0.push(event);
        self
    }

    fn asks(self, at: u64, attempt: u64, access: Access) -> Self {
        let exact = true;
        self.tell(at, attempt, What::Requested { access, exact })
    }

    /// Asks exclusively and is granted the lock at once.
    fn takes(self, at: u64, attempt: u64, token: u64, until: u64) -> Self {
        self.asks(at, attempt, Access::Exclusive)
            .granted(at, attempt, token, until)
    }

    fn granted(self, at: u64, attempt: u64, token: u64, until: u64) -> Self {
        let (token, until) = (Some(token), Some(until));
        self.tell(at, attempt, What::Granted { token, until })
    }

    fn gives_back(self, at: u64, attempt: u64) -> Self {
        let releasing = self.tell(at, attempt, What::Releasing { held: true });
        releasing.tell(at, attempt, What::Released { clean: Some(true) })
    }

    fn loses(self, at: u64, attempt: u64, reason: &str) -> Self {
        let reason = reason.to_owned();
        self.tell(at, attempt, What::Lost { reason })
    }

    fn wrote(self, at: u64, token: u64, accepted: bool) -> Self {
        self.tell(at, 0, What::Wrote { token, accepted })
    }

    fn interfered(self, at: u64) -> Self {
        let how = "broken".to_owned();
        self.tell(at, 0, What::Interfered { how })
    }

    fn left(self, at: u64, holders: u64, waiters: u64) -> Self {
        self.tell(at, 0, What::Left { holders, waiters })
    }

    fn found(&self) -> Vec<Violation> {
        let found = strict().check(&self.0).violations.into_iter();
        found.map(|(_, violation)| violation).collect()
    }
}

/// Tolerates 5 ns of delay and 100 ns of waiting for a free lock.
fn strict() -> Checker {
    let ns = Duration::from_nanos;
    Checker::new()
        .with_signal_delay(ns(5))
        .with_max_idle(ns(100))
}

fn overlap(first: u64, second: u64) -> Violation {
    Violation::Overlap { first, second }
}

fn permit(limit: u32) -> Access {
    Access::Permit(NonZeroU32::new(limit).unwrap())
}

#[test]
fn an_orderly_history_is_clean_and_counted() {
    let story = Story::default()
        .takes(10, 1, 1, 50)
        .asks(12, 2, Access::Exclusive)
        .gives_back(20, 1)
        .granted(22, 2, 2, 60)
        .wrote(25, 2, true)
        .wrote(26, 1, false)
        .loses(60, 2, "expired")
        .left(90, 0, 0);
    let summary = strict().check(&story.0).assert_clean();
    let expected = Summary {
        requests: 2,
        grants: 2,
        lost: 1,
        writes: 1,
        stale_writes: 1,
    };
    assert_eq!(summary, expected);
}

#[test]
#[should_panic(expected = "2 was granted the lock while 1 held it")]
fn a_violation_is_named_in_the_panic() {
    let story = Story::default().takes(10, 1, 1, 50).takes(20, 2, 2, 60);
    strict().check(&story.0).assert_clean();
}

#[test]
fn two_exclusive_holders_overlap() {
    let story = Story::default().takes(10, 1, 1, 50).takes(49, 2, 2, 90);
    assert_eq!(story.found(), [overlap(1, 2)]);
    let story = Story::default().takes(10, 1, 1, 50).takes(50, 2, 2, 90);
    assert_eq!(story.found(), [], "the end of a lease belongs to nobody");
}

#[test]
fn a_writer_overlaps_with_readers_and_readers_do_not_with_each_other() {
    let readers = Story::default()
        .asks(1, 1, Access::Shared)
        .granted(2, 1, 1, 50)
        .asks(3, 2, Access::Shared)
        .granted(4, 2, 2, 60);
    assert_eq!(readers.found(), []);
    let writer = readers.takes(55, 3, 3, 90);
    assert_eq!(writer.found(), [overlap(2, 3)]);
}

#[test]
fn one_permit_too_many_is_an_overlap() {
    let mut story = Story::default();
    for n in 1..=3 {
        story = story.asks(n, n, permit(2)).granted(n, n, n, 50);
    }
    assert_eq!(story.found(), [overlap(2, 3)]);
}

#[test]
fn without_a_deadline_a_lock_is_held_until_its_release_or_its_last_sign() {
    let exact = What::Requested {
        access: Access::Exclusive,
        exact: false,
    };
    let granted = What::Granted {
        token: None,
        until: None,
    };
    let open = Story::default().tell(1, 1, exact).tell(2, 1, granted);
    let seen = open.clone().tell(40, 1, What::Held { until: None });
    assert_eq!(seen.takes(30, 2, 2, 90).found().len(), 1);
    assert_eq!(
        open.takes(30, 2, 2, 90).found(),
        [],
        "nothing proves that it was still held"
    );
}

#[test]
fn a_token_that_is_not_larger_is_found() {
    let first = Story::default().takes(10, 1, 7, 50).gives_back(20, 1);
    let again = first.clone().takes(30, 2, 7, 90);
    assert_eq!(
        again.found(),
        [Violation::TokenReused { later: 2, token: 7 }]
    );
    let back = first.takes(30, 2, 6, 90);
    assert_eq!(
        back.found(),
        [Violation::TokenWentBack {
            later: 2,
            token: 6,
            largest: 7
        }]
    );
}

#[test]
fn readers_that_asked_at_once_may_share_a_token_and_later_ones_not() {
    let story = Story::default()
        .asks(1, 1, Access::Shared)
        .asks(1, 2, Access::Shared)
        .granted(5, 1, 3, 50)
        .granted(6, 2, 3, 50);
    assert_eq!(story.found(), []);
    let late = story.asks(7, 3, Access::Shared).granted(8, 3, 3, 50);
    assert_eq!(
        late.found(),
        [Violation::TokenReused { later: 3, token: 3 }]
    );
}

#[test]
fn a_register_that_goes_back_or_refuses_what_is_fresh_is_found() {
    let story = Story::default().wrote(1, 5, true).wrote(2, 4, true);
    assert_eq!(
        story.found(),
        [Violation::RegisterWentBack {
            token: 4,
            largest: 5
        }]
    );
    let story = Story::default().wrote(1, 5, true).wrote(2, 5, false);
    assert_eq!(story.found(), [Violation::RefusedFreshToken { token: 5 }]);
}

#[test]
fn a_release_that_takes_another_holders_lock_is_found() {
    let story = Story::default()
        .takes(10, 1, 1, 50)
        .loses(50, 1, "expired")
        .takes(60, 2, 2, 90)
        .tell(70, 1, What::Releasing { held: false })
        .tell(71, 1, What::Released { clean: Some(true) });
    assert_eq!(story.found(), [Violation::ForeignRelease { by: 1 }]);
}

#[test]
fn a_lock_that_is_gone_before_its_time_needs_a_cause() {
    let robbed = Violation::LostWithoutCause { holder: 1 };
    let held = Story::default().takes(10, 1, 1, 50);
    assert_eq!(
        held.clone().loses(30, 1, "stolen").found(),
        vec![robbed.clone()]
    );
    let gone = held.clone().tell(30, 1, What::Releasing { held: true });
    let gone = gone.tell(31, 1, What::Released { clean: Some(false) });
    assert_eq!(gone.found(), [robbed]);
    let broken = held.interfered(29);
    assert_eq!(broken.loses(30, 1, "broken").found(), []);
}

#[test]
fn a_signal_after_the_deadline_is_late() {
    let held = Story::default().takes(10, 1, 1, 50);
    assert_eq!(held.clone().loses(55, 1, "expired").found(), []);
    assert_eq!(
        held.loses(56, 1, "expired").found(),
        [Violation::LateSignal { holder: 1, by: 6 }]
    );
}

#[test]
fn a_lock_that_is_held_after_its_end_is_found() {
    let held = Story::default().takes(10, 1, 1, 50);
    let seen = What::Held { until: Some(80) };
    let rose = Violation::HeldAfterLoss { holder: 1 };
    assert_eq!(
        held.clone().tell(49, 1, seen.clone()).found(),
        [],
        "renewed in time"
    );
    assert_eq!(
        held.clone().tell(51, 1, seen.clone()).found(),
        vec![rose.clone()]
    );
    assert_eq!(
        held.loses(30, 1, "max_hold").tell(31, 1, seen).found(),
        [rose]
    );
}

#[test]
fn a_wait_for_a_free_lock_that_is_too_long_is_found() {
    let free = Story::default()
        .takes(10, 1, 1, 50)
        .asks(15, 2, Access::Exclusive)
        .gives_back(20, 1);
    assert_eq!(free.clone().granted(120, 2, 2, 200).found(), []);
    let late = free.clone().granted(121, 2, 2, 200);
    assert_eq!(late.found(), [Violation::Starved { waiter: 2 }]);
    let disturbed = free.interfered(60);
    assert_eq!(disturbed.granted(121, 2, 2, 200).found(), []);
}

#[test]
fn what_is_left_at_the_end_is_found() {
    let story = Story::default().left(1, 0, 2);
    assert_eq!(
        story.found(),
        [Violation::LeftBehind {
            holders: 0,
            waiters: 2
        }]
    );
}
