//! Every interleaving of the operations that change the state of one lock.
//!
//! `RUSTFLAGS="--cfg polylock_loom" cargo test -p polylock-core --lib loom --target-dir target/loom`

use ::loom::sync::Arc;
use ::loom::thread;

use super::atomic::{AtomicU32, Ordering};
use super::entries::Entries;
use super::validity::{End, Validity, ValidityState};
use crate::engine::Moment;
use crate::lost_reason::LostReason;

const GIVEN_UP: End = End::GivenUp(Moment::from_nanos(0));
const LOST: End = End::Lost(LostReason::Stolen);

fn at(n: u64) -> Moment {
    Moment::from_nanos(1_000 + n)
}

/// Runs `act` on a thread of its own.
fn beside<S: 'static, T: 'static>(
    state: &Arc<S>,
    act: impl FnOnce(&S) -> T + 'static,
) -> thread::JoinHandle<T> {
    let state = Arc::clone(state);
    thread::spawn(move || act(&state))
}

/// What a reader sees at `now`, and whether its look ended the lock.
fn look(validity: &Validity, now: Moment) -> (ValidityState, bool) {
    let ended = validity.pass(now, LostReason::Expired);
    (validity.load(), ended)
}

fn assert_final(earlier: ValidityState, later: ValidityState) {
    if let ValidityState::Ended(_) = earlier {
        assert_eq!(
            earlier, later,
            "a lock that was over came back or ended anew"
        );
    }
}

#[test]
fn a_reader_sees_no_lock_come_back_while_the_scheduler_moves_its_deadline() {
    ::loom::model(|| {
        let validity = Arc::new(Validity::until(at(10)));
        let scheduler = beside(&validity, |validity| {
            (
                validity.extend(at(5), at(20)),
                validity.limit(at(6), at(15)),
            )
        });
        let (first, ended_first) = look(&validity, at(12));
        let (second, ended_second) = look(&validity, at(17));
        let (extended, limited) = scheduler.join().unwrap();
        assert_final(first, second);
        assert_final(second, validity.load());
        assert!(
            !(ended_first && (extended || limited)),
            "a deadline that had passed moved on"
        );
        assert!(!(ended_first && ended_second), "lost twice");
    });
}

#[test]
fn an_answer_that_comes_after_the_deadline_revives_nothing() {
    ::loom::model(|| {
        let validity = Arc::new(Validity::until(at(10)));
        let scheduler = beside(&validity, |validity| validity.extend(at(12), at(20)));
        let doubt = beside(&validity, |validity| validity.limit(at(9), at(11)));
        let (seen, ended) = look(&validity, at(12));
        assert!(ended && seen == ValidityState::Ended(End::Lost(LostReason::Expired)));
        assert!(!scheduler.join().unwrap());
        doubt.join().unwrap();
        assert_final(seen, validity.load());
    });
}

#[test]
fn what_a_reader_saw_over_is_not_extended() {
    ::loom::model(|| {
        let validity = Arc::new(Validity::until(at(10)));
        let scheduler = beside(&validity, |validity| validity.extend(at(5), at(20)));
        let report = beside(&validity, |validity| validity.end(LOST).is_some());
        let (seen, ended) = look(&validity, at(12));
        assert_final(seen, validity.load());
        let (extended, lost) = (scheduler.join().unwrap(), report.join().unwrap());
        assert_final(seen, validity.load());
        assert_ne!(ended, lost, "one of them ended the lock");
        assert!(!(ended && extended));
    });
}

#[test]
fn a_reader_a_report_and_the_holder_agree_on_one_end() {
    ::loom::model(|| {
        let validity = Arc::new(Validity::until(at(10)));
        let reader = beside(&validity, |validity| look(validity, at(10)));
        let report = beside(&validity, |validity| validity.end(LOST).is_some());
        let given_up = validity.end(GIVEN_UP).is_some();
        let seen_here = validity.load();
        let ((seen_there, passed), lost) = (reader.join().unwrap(), report.join().unwrap());
        let won = [given_up, passed, lost].iter().filter(|won| **won).count();
        assert_eq!(won, 1);
        assert_eq!(seen_here, validity.load());
        assert_eq!(seen_there, validity.load());
    });
}

#[test]
fn giving_up_and_a_report_have_one_winner() {
    ::loom::model(|| {
        let validity = Arc::new(Validity::until(at(10)));
        let report = beside(&validity, |validity| validity.end(LOST));
        let scheduler = beside(&validity, |validity| validity.extend(at(5), at(20)));
        let given_up = validity.end(GIVEN_UP);
        let (lost, extended) = (report.join().unwrap(), scheduler.join().unwrap());
        let last = match validity.load() {
            ValidityState::Ended(end) => end,
            ValidityState::Held(_) => panic!("held after two ends"),
        };
        // The operation that ended it knows its deadline, with every confirmed extension.
        let until = Some(if extended { at(20) } else { at(10) });
        match last {
            End::GivenUp(_) => assert_eq!((given_up, lost), (until, None)),
            End::Lost(_) => assert_eq!((given_up, lost), (None, until)),
        }
    });
}

#[test]
fn an_extension_and_the_end_of_its_deadline_exclude_each_other() {
    ::loom::model(|| {
        let validity = Arc::new(Validity::until(at(10)));
        let scheduler = beside(&validity, |validity| validity.extend(at(9), at(15)));
        let doubt = beside(&validity, |validity| validity.limit(at(9), at(19)));
        let passed = validity.pass(at(10), LostReason::Expired);
        let moved = (scheduler.join().unwrap(), doubt.join().unwrap());
        assert_eq!(moved, (!passed, !passed));
        match validity.load() {
            ValidityState::Ended(_) => assert!(passed),
            // In either order: an extension never shortens.
            ValidityState::Held(until) => assert!(!passed && until == at(19)),
        }
    });
}

#[test]
fn one_guard_is_the_last_and_no_other_enters_after_it() {
    ::loom::model(|| {
        let entries = Arc::new(Entries::one(true));
        let inner =
            [(); 2].map(|()| beside(&entries, |entries| entries.enter() && entries.leave()));
        let outer = entries.leave();
        let [one, other] = inner.map(|inner| inner.join().unwrap());
        let last = [outer, one, other]
            .iter()
            .filter(|is_last| **is_last)
            .count();
        assert_eq!(last, 1);
        assert!(!entries.enter());
    });
}

#[test]
fn a_lock_that_becomes_a_shared_one_has_one_guard() {
    ::loom::model(|| {
        let entries = Arc::new(Entries::one(true));
        let inner = beside(&entries, Entries::enter);
        let shared = entries.make_shared();
        let entered = inner.join().unwrap();
        assert_ne!(shared, entered, "one of them came first");
        assert_ne!(entries.is_exclusive(), shared);
        assert_eq!(entries.leave(), !entered);
    });
}

#[test]
fn a_lock_that_is_closed_has_one_guard_and_stays_exclusive() {
    ::loom::model(|| {
        let entries = Arc::new(Entries::one(true));
        let inner = beside(&entries, |entries| {
            (entries.enter(), entries.is_exclusive())
        });
        let closed = entries.close();
        let (entered, is_exclusive) = inner.join().unwrap();
        assert_ne!(closed, entered, "one of them came first");
        assert!(is_exclusive, "the owner takes its lock for a shared one");
        assert_eq!(entries.leave(), closed);
    });
}

#[test]
fn a_loss_is_seen_by_the_task_that_seats_the_lock_or_told_to_its_home() {
    ::loom::model(|| {
        let lock = Arc::new((Validity::until(Moment::NEVER), AtomicU32::new(0)));
        let loss = beside(&lock, |(validity, seated)| {
            validity.end(LOST);
            seated.load(Ordering::Acquire) == 1
        });
        lock.1.store(1, Ordering::Release);
        let holder = matches!(lock.0.latest(), ValidityState::Held(_));
        let woken = loss.join().unwrap();
        assert!(woken || !holder, "seated, and nobody hears of its end");
    });
}

#[test]
fn a_lock_is_not_given_up_while_a_guard_is_inside() {
    ::loom::model(|| {
        let lock = Arc::new((Entries::one(true), Validity::until(Moment::NEVER)));
        let leave = |(entries, validity): &(Entries, Validity)| {
            usize::from(entries.leave() && validity.end(GIVEN_UP).is_some())
        };
        let inner = beside(&lock, move |lock| {
            if !(lock.1.is_held(at(1)) && lock.0.enter()) {
                return 0;
            }
            assert!(lock.1.is_held(at(1)), "entered a lock that was given up");
            leave(lock)
        });
        assert_eq!(leave(&lock) + inner.join().unwrap(), 1);
    });
}
