use std::time::Duration;

use polylock_core::engine::Moment;
use polylock_core::{LeaseState, LostReason, Mode, Released, TtlRule};
use proptest::prelude::*;

use super::testing::{EXCLUSIVE, SHARED, TTL, at, claim, due, holder, id, lock, now, permit};
use super::{BootId, LockRefusal, LockRow, LockRows, ReadContext, SlotHolder, TokenRange};

const HELD: LockRefusal = LockRefusal::held(Moment::from_nanos(TTL * 1_000_000_000));

fn granted(taken: Result<TokenRange, LockRefusal>) -> TokenRange {
    taken.unwrap()
}

#[test]
fn a_lease_that_ended_is_neither_renewed_nor_released_clean() {
    let mut lock = lock(&[(0, holder(1, 50))]);
    assert_eq!(lock.renew(&due(1, 30), &now(49)), LeaseState::Held);
    assert_eq!(
        lock.look(&claim(8, EXCLUSIVE), &now(78)),
        Err(LockRefusal::held(at(79)))
    );
    let expired = LeaseState::Lost(LostReason::Expired);
    assert_eq!(lock.renew(&due(1, 30), &now(79)), expired);
    assert_eq!(lock.release(id(1), &now(79)), Released::AlreadyLost);
    let stolen = LeaseState::Lost(LostReason::Stolen);
    assert_eq!(lock.renew(&due(1, 30), &now(79)), stolen);
}

#[test]
fn a_renewal_for_less_cuts_no_lease_unless_it_says_so() {
    let mut lock = lock(&[(0, holder(1, 50))]);
    let ends = |lock: &LockRows| lock.rows().next().unwrap().holder.clone().unwrap().expires;
    lock.renew(&due(1, 600), &now(20));
    assert_eq!(ends(&lock), at(620));
    lock.renew(&due(1, 30), &now(30));
    assert_eq!(ends(&lock), at(620), "it was extended");
    // The clock of the server is set back: what was granted is 590 s, and not more.
    lock.renew(&due(1, 30), &now(10));
    assert_eq!(ends(&lock), at(600));
    let mut last = due(1, 5);
    last.rule = TtlRule::Exactly;
    lock.renew(&last, &now(40));
    assert_eq!(ends(&lock), at(45));
}

#[test]
fn an_adoption_for_less_cuts_no_lease() {
    let mut lock = lock(&[(0, holder(1, 50))]);
    let ends = |lock: &LockRows| lock.rows().next().unwrap().holder.clone().unwrap().expires;
    for (now_at, end) in [(30, 50), (48, 53)] {
        lock.adopt(id(1), &due(2, 5), &now(now_at)).unwrap();
        assert_eq!(ends(&lock), at(end));
    }
}

#[test]
fn a_broken_holder_is_told_so_after_others_took_its_slot() {
    let mut lock = lock(&[(1, holder(1, 50)), (2, holder(2, 50)), (3, holder(3, 10))]);
    lock.break_all("wedged", &now(20));
    granted(lock.take(&claim(4, SHARED), &now(21)));
    let renewed = |lock: &mut LockRows, n| lock.renew(&due(n, 30), &now(22));
    assert_eq!(renewed(&mut lock, 1), LeaseState::Lost(LostReason::Broken));
    assert_eq!(renewed(&mut lock, 2), LeaseState::Lost(LostReason::Broken));
    assert_eq!(renewed(&mut lock, 3), LeaseState::Lost(LostReason::Expired));
    assert_eq!(renewed(&mut lock, 4), LeaseState::Held);
}

#[test]
fn a_repeated_claim_has_one_place_and_a_larger_token() {
    let mut lock = LockRows::default();
    let first = granted(lock.take(&claim(1, permit(2)), &now(0)));
    let again = granted(lock.take(&claim(1, permit(2)), &now(1)));
    assert!(again.next > first.last);
    granted(lock.take(&claim(2, permit(2)), &now(1)));
    assert_eq!(lock.changed().filter(|row| row.holder.is_some()).count(), 2);
}

#[test]
fn a_clock_that_goes_back_takes_no_token_back() {
    let mut lock = LockRows::default();
    let first = granted(lock.take(&claim(1, EXCLUSIVE), &now(1000)));
    assert_eq!(first.next, now(1000).unix);
    lock.release(id(1), &now(1000));
    let mut earlier = now(1001);
    earlier.unix = 5;
    let second = granted(lock.take(&claim(2, EXCLUSIVE), &earlier));
    assert_eq!(second.next, first.last + 1);
    earlier.floor = 77;
    let mut fresh = LockRows::default();
    assert_eq!(
        granted(fresh.take(&claim(3, SHARED), &earlier)),
        TokenRange { next: 78, last: 78 }
    );
}

#[test]
fn reserved_tokens_belong_to_no_other_holder() {
    let mut lock = LockRows::default();
    let first = granted(lock.take(&claim(1, EXCLUSIVE), &now(0)));
    let more = lock.reserve(id(1), &now(0)).unwrap();
    assert!(more.next > first.last);
    lock.release(id(1), &now(0));
    assert!(granted(lock.take(&claim(2, EXCLUSIVE), &now(0))).next > more.last);
    assert_eq!(lock.reserve(id(1), &now(0)), None);
}

#[test]
fn a_waiting_writer_keeps_readers_out_until_it_stays_away() {
    let mut lock = lock(&[(1, holder(2, 50))]);
    let held = |until| Err(LockRefusal::held(until));
    // It does not wait.
    assert_eq!(lock.take(&claim(4, EXCLUSIVE), &now(10)), held(at(50)));
    assert_eq!(lock.look(&claim(8, SHARED), &now(10)), Ok(()));
    assert_eq!(
        lock.look(&claim(8, EXCLUSIVE), &now(10)),
        Ok(()),
        "a claim is to be made"
    );
    assert_eq!(lock.take(&claim(1, EXCLUSIVE), &now(10)), held(at(50)));
    let claimed = at(10) + Duration::from_millis(200);
    assert_eq!(
        lock.look(&claim(8, EXCLUSIVE), &now(10)),
        Err(LockRefusal::held(at(50)))
    );
    assert_eq!(lock.take(&claim(6, SHARED), &now(10)), held(claimed));
    assert_eq!(lock.take(&claim(6, permit(2)), &now(10)), held(at(50)));
    assert_eq!(lock.renew(&due(2, TTL), &now(10)), LeaseState::Held);
    assert_eq!(lock.release(id(2), &now(10)), Released::Clean);
    assert_eq!(lock.take(&claim(6, SHARED), &now(10)), held(claimed));
    granted(lock.take(&claim(6, SHARED), &now(11)));
    assert_eq!(
        lock.take(&claim(1, EXCLUSIVE), &now(11)),
        held(at(11 + TTL))
    );
    lock.release(id(6), &now(11));
    granted(lock.take(&claim(1, EXCLUSIVE), &now(11)));
    lock.release(id(1), &now(11));
    granted(lock.take(&claim(6, SHARED), &now(11)));
}

#[test]
fn a_claim_counts_by_the_clock_of_the_kernel() {
    let day = 86_400;
    let ahead = |seconds| ReadContext {
        boot: BootId([9; 16]),
        shift: Some(i64::try_from(day).unwrap() * 1_000_000_000),
        moment: at(seconds + day),
        ..now(seconds)
    };
    for (writer, reader) in [(now(10), ahead(10)), (ahead(10), now(10))] {
        let mut lock = lock(&[(1, holder(2, 50))]);
        // Its end by the clock of each client, as the store finds it out.
        let mut seen_by = |claim, ctx: &ReadContext| {
            let mut row = LockRow::new(1);
            row.holder = Some(SlotHolder {
                end: Some(ctx.moment + Duration::from_secs(40)),
                ..holder(2, 50)
            });
            lock.load(row);
            (lock.look(&claim, ctx), lock.take(&claim, ctx))
        };
        assert_eq!(
            seen_by(claim(1, EXCLUSIVE), &writer).0,
            Ok(()),
            "a claim is to be made"
        );
        let (looked, taken) = seen_by(claim(6, SHARED), &reader);
        let claimed = reader.moment + Duration::from_millis(200);
        assert_eq!(looked, Err(LockRefusal::held(claimed)));
        assert_eq!(taken, Err(LockRefusal::held(claimed)));
        let looked = seen_by(claim(8, EXCLUSIVE), &reader).0;
        assert!(looked.is_err(), "the claim of another waiter is renewed");
    }
}

#[test]
fn a_claim_of_an_unknown_clock_or_from_before_a_reboot_keeps_no_client_out() {
    let mut lock = lock(&[(1, holder(2, 50))]);
    let unknown = ReadContext {
        shift: None,
        ..now(10)
    };
    assert!(lock.look(&claim(1, EXCLUSIVE), &unknown).is_err());
    lock.take(&claim(1, EXCLUSIVE), &unknown).unwrap_err();
    granted(lock.take(&claim(4, SHARED), &now(10)));
    lock.take(&claim(1, EXCLUSIVE), &now(10)).unwrap_err();
    let rebooted = ReadContext {
        boot: BootId([9; 16]),
        ..now(3)
    };
    granted(lock.take(&claim(6, SHARED), &rebooted));
}

#[derive(Clone, Debug)]
enum Step {
    Adopt(u8, u8),
    Break,
    Downgrade(u8),
    Release(u8),
    Renew(u8),
    Take(u8, Mode),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![
        Just(EXCLUSIVE),
        Just(SHARED),
        Just(permit(2)),
        Just(permit(3))
    ];
    let who = 1..6_u8;
    prop_oneof![
        2 => (who.clone(), who.clone()).prop_map(|(from, to)| Step::Adopt(from, to)),
        1 => Just(Step::Break),
        1 => who.clone().prop_map(Step::Downgrade),
        4 => who.clone().prop_map(Step::Release),
        4 => who.clone().prop_map(Step::Renew),
        8 => (who, mode).prop_map(|(who, mode)| Step::Take(who, mode)),
        4 => (0..20_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever happens, holders exclude each other as their modes say, and tokens increase.
    #[test]
    fn holders_never_overlap(steps in prop::collection::vec(step(), 1..80)) {
        let mut lock = LockRows::default();
        let (mut seconds, mut last) = (0, 0);
        for step in steps {
            match step {
                Step::Adopt(from, to) => {
                    let is_repeated = lock.held_slot(id(to), &now(seconds)) == Ok(0);
                    if let Some(token) = lock.adopt(id(from), &due(to, TTL), &now(seconds)) {
                        prop_assert!(is_repeated || token > last);
                        last = last.max(token);
                    }
                }
                Step::Break => lock.break_all("why not", &now(seconds)),
                Step::Downgrade(n) => { lock.downgrade(id(n), &now(seconds)); }
                Step::Release(n) => { lock.release(id(n), &now(seconds)); }
                Step::Renew(n) => { lock.renew(&due(n, TTL), &now(seconds)); }
                Step::Take(n, mode) => {
                    if let Ok(tokens) = lock.take(&claim(n, mode), &now(seconds)) {
                        prop_assert!(tokens.next > last && tokens.last >= tokens.next);
                        last = tokens.last;
                        if let Mode::Permit { limit } = mode {
                            let count = lock.held_leases(&now(seconds)).count();
                            prop_assert!(count <= limit.get() as usize, "{count} beside a {limit}");
                        }
                    }
                }
                Step::Wait(more) => seconds += more,
            }
            let held_leases: Vec<_> = lock.held_leases(&now(seconds)).map(|(slot, h)| (slot, h.permits)).collect();
            let exclusive = held_leases.iter().filter(|(slot, _)| *slot == 0).count();
            prop_assert!(exclusive == 0 || held_leases.len() == 1, "{held_leases:?}");
            let limits: Vec<_> = held_leases.iter().map(|(_, permits)| *permits).collect();
            prop_assert!(limits.windows(2).all(|pair| (pair[0] == 0) == (pair[1] == 0)), "{held_leases:?}");
            let limit = limits.iter().copied().max().unwrap_or(0) as usize;
            prop_assert!(limit == 0 || held_leases.len() <= limit, "{held_leases:?}");
        }
    }
}

#[test]
fn a_step_of_the_wall_clock_ends_no_lease_and_repeats_no_token() {
    let stepped = |seconds: u64, unix: u64| ReadContext {
        unix,
        ..now(seconds)
    };
    let mut lock = LockRows::default();
    let first = granted(lock.take(&claim(1, EXCLUSIVE), &stepped(0, 5_000_000_000)));
    let (far_ahead, long_ago) = (900_000_000_000, 1);
    for unix in [far_ahead, long_ago] {
        assert_eq!(
            lock.look(&claim(8, EXCLUSIVE), &stepped(TTL - 1, unix)),
            Err(HELD),
            "the wall clock is at {unix}"
        );
        let renewed = lock.clone().renew(&due(1, 30), &stepped(1, unix));
        assert_eq!(renewed, LeaseState::Held, "the wall clock is at {unix}");
    }
    let second = granted(lock.take(&claim(2, EXCLUSIVE), &stepped(TTL, long_ago)));
    assert!(second.next > first.last);
}
