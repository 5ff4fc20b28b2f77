use super::*;
use crate::server::double_average;
use crate::table::Left;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pays_what_was_put_in_to_twenty_people() {
    let args = Args::parse_from(["red_envelope"]);
    let [unlocked, locked] = play_both(&args).await.unwrap();
    assert_eq!(locked.faults(&args), Vec::<String>::new(), "{locked}");
    assert_eq!(
        (locked.sum(), locked.paid.len(), locked.paid_twice()),
        (8888, 20, 0)
    );
    // Of fifty who tried twice, thirty came too late, and were told so twice.
    let late = locked.told.values().filter(|told| **told == [None, None]);
    assert_eq!(late.count(), 30);

    assert!(unlocked.sum() > 8888, "{unlocked}");
}

#[test]
fn every_envelope_is_shared_to_the_last_cent() {
    let chance = Chance::new(7);
    for total in 1..=200 {
        for shares in 1..=total.min(40) {
            let mut left = Left {
                cents: total,
                shares,
            };
            while left.shares > 0 {
                let most = 2 * left.cents / left.shares;
                let cents = double_average(left, chance.draw());
                assert!(
                    cents >= 1 && (left.shares == 1 || cents < most.max(2)),
                    "{left:?}"
                );
                left.cents -= cents;
                left.shares -= 1;
                assert!(left.cents >= left.shares, "{left:?} of {total}");
            }
            assert_eq!(left.cents, 0);
        }
    }
}

#[test]
fn shares_have_the_same_expectation_wherever_in_the_queue() {
    let chance = Chance::new(7);
    let mut sums = [0; 4];
    for _ in 0..20_000 {
        let mut left = Left {
            cents: 400,
            shares: 4,
        };
        for sum in &mut sums {
            let cents = double_average(left, chance.draw());
            *sum += cents;
            left.cents -= cents;
            left.shares -= 1;
        }
    }
    for sum in sums {
        assert!((98..=102).contains(&(sum / 20_000)), "{sums:?}");
    }
}
