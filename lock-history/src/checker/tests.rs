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

    fn seen(self, at: u64, attempt: u64, until: Option<u64>) -> Self {
        self.tell(at, attempt, What::Held { until })
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

/// A test of each story, and what is found in it.
macro_rules! stories {
    ($($name:ident: $story:expr => $found:expr;)*) => {
        $(#[test]
        fn $name() {
            assert_eq!($story.found(), $found);
        })*
    };
}

stories! {
    two_exclusive_holders_overlap: held().takes(49, 2, 2, 90) => [overlap(1, 2)];
    the_end_of_a_lease_belongs_to_no_holder: held().takes(50, 2, 2, 90) => [];
    readers_do_not_overlap_with_each_other: readers() => [];
    a_writer_overlaps_with_readers: readers().takes(55, 3, 3, 90) => [overlap(2, 3)];
    one_permit_too_many_is_an_overlap:
        Story::default()
            .asks(1, 1, permit(2)).granted(1, 1, 1, 50)
            .asks(2, 2, permit(2)).granted(2, 2, 2, 50)
            .asks(3, 3, permit(2)).granted(3, 3, 3, 50)
        => [overlap(2, 3)];
    without_a_deadline_a_lock_is_held_until_its_last_sign:
        endless().seen(40, 1, None).takes(30, 2, 2, 90) => [overlap(1, 2)];
    nothing_proves_that_a_lock_without_a_deadline_is_still_held:
        endless().takes(30, 2, 2, 90) => [];

    a_token_that_is_used_again_is_found:
        held().gives_back(20, 1).takes(30, 2, 1, 90)
        => [Violation::TokenReused { later: 2, token: 1 }];
    a_token_that_is_smaller_is_found:
        held().gives_back(20, 1).takes(30, 2, 0, 90)
        => [Violation::TokenWentBack { later: 2, token: 0, largest: 1 }];
    readers_that_asked_at_once_may_share_a_token: sharing() => [];
    a_reader_that_asked_later_may_not:
        sharing().asks(7, 3, Access::Shared).granted(8, 3, 3, 50)
        => [Violation::TokenReused { later: 3, token: 3 }];
    a_grant_that_is_noted_after_its_end_may_be_older_than_its_note: noted_late() => [];
    a_grant_that_is_noted_after_its_end_is_no_victim_of_a_release:
        noted_late().gives_back(70, 2) => [];
    a_grant_that_is_noted_after_its_end_is_newer_than_its_request:
        held().gives_back(20, 1).asks(25, 2, Access::Exclusive).granted(60, 2, 1, 50)
        => [Violation::TokenReused { later: 2, token: 1 }];
    a_register_that_goes_back_is_found:
        Story::default().wrote(1, 5, true).wrote(2, 4, true)
        => [Violation::RegisterWentBack { token: 4, largest: 5 }];
    a_register_that_refuses_what_is_fresh_is_found:
        Story::default().wrote(1, 5, true).wrote(2, 5, false)
        => [Violation::RefusedFreshToken { token: 5 }];

    a_release_that_takes_another_holders_lock_is_found:
        held()
            .loses(50, 1, "expired")
            .takes(60, 2, 2, 90)
            .tell(70, 1, What::Releasing { held: false })
            .tell(71, 1, What::Released { clean: Some(true) })
        => [Violation::ForeignRelease { by: 1 }];
    a_lock_that_is_stolen_is_found:
        held().loses(30, 1, "stolen") => [Violation::LostWithoutCause { holder: 1 }];
    a_lock_that_is_gone_at_its_release_is_found:
        held()
            .tell(30, 1, What::Releasing { held: true })
            .tell(31, 1, What::Released { clean: Some(false) })
        => [Violation::LostWithoutCause { holder: 1 }];
    a_lock_that_was_broken_is_lost_for_a_cause:
        held().interfered(29).loses(30, 1, "broken") => [];
    a_signal_soon_after_the_deadline_is_in_time: held().loses(55, 1, "expired") => [];
    a_signal_later_than_that_is_late:
        held().loses(56, 1, "expired") => [Violation::LateSignal { holder: 1, by: 6 }];
    a_lock_that_is_renewed_in_time_is_held: held().seen(49, 1, Some(80)) => [];
    a_lock_that_is_held_after_its_deadline_is_found:
        held().seen(51, 1, Some(80)) => [Violation::HeldAfterLoss { holder: 1 }];
    a_lock_that_is_held_after_its_loss_is_found:
        held().loses(30, 1, "max_hold").seen(31, 1, Some(80))
        => [Violation::HeldAfterLoss { holder: 1 }];

    a_wait_for_a_free_lock_may_take_a_while: wanted().granted(120, 2, 2, 200) => [];
    a_wait_for_a_free_lock_that_is_too_long_is_found:
        wanted().granted(121, 2, 2, 200) => [Violation::Starved { waiter: 2 }];
    a_wait_that_was_disturbed_may_take_longer:
        wanted().interfered(60).granted(121, 2, 2, 200) => [];
    what_is_left_at_the_end_is_found:
        Story::default().left(1, 0, 2)
        => [Violation::LeftBehind { holders: 0, waiters: 2 }];
}

/// Acquisition 1 has the lock from 10 until 50, with token 1.
fn held() -> Story {
    Story::default().takes(10, 1, 1, 50)
}

/// Acquisition 1 has the lock from 2 on, without a token or a deadline.
fn endless() -> Story {
    let (token, until) = (None, None);
    Story::default()
        .tell(1, 1, What::exclusive())
        .tell(2, 1, What::Granted { token, until })
}

/// Acquisition 1 has the lock until 50, which is noted at 60, when acquisition 2 has it.
fn noted_late() -> Story {
    Story::default()
        .asks(0, 1, Access::Exclusive)
        .takes(55, 2, 2, 90)
        .granted(60, 1, 1, 50)
}

/// Acquisition 2 waits for a lock that is free from 20 on.
fn wanted() -> Story {
    held().asks(15, 2, Access::Exclusive).gives_back(20, 1)
}

/// Acquisitions 1 and 2 are readers, until 50 and 60.
fn readers() -> Story {
    Story::default()
        .asks(1, 1, Access::Shared)
        .granted(2, 1, 1, 50)
        .asks(3, 2, Access::Shared)
        .granted(4, 2, 2, 60)
}

/// Acquisitions 1 and 2 are readers with one token, which asked at the same time.
fn sharing() -> Story {
    Story::default()
        .asks(1, 1, Access::Shared)
        .asks(1, 2, Access::Shared)
        .granted(5, 1, 3, 50)
        .granted(6, 2, 3, 50)
}
