use super::*;
use crate::bank::{ACCOUNTS, Transfer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_sum_and_waits_for_nobody_who_waits() {
    let shown = show(&Args::parse_from(["account_transfer"])).await.unwrap();
    assert_eq!(shown.broken_claims(), [""; 0], "{shown}");
    let Shown {
        unlocked,
        locked,
        naive,
        sorted,
        late,
    } = &shown;
    assert_eq!(unlocked.made + unlocked.declined, 402);
    assert_ne!(unlocked.sum, 8000);

    assert_eq!((locked.made + locked.declined, locked.sum), (402, 8000));
    assert!(locked.least >= 0 && locked.declined > 0, "{locked:?}");

    // One of each pair at least, and whoever had to wait for it may be in time or not.
    assert!((4..=8).contains(&naive.timed_out), "{naive:?}");
    assert_eq!((naive.done + naive.timed_out, naive.sum), (8, 8000));
    assert_eq!((sorted.done, sorted.timed_out, sorted.sum), (8, 0, 8000));

    let stale = late.refused.as_ref().expect("the late transfer is refused");
    assert_eq!(stale.resource, "account 1");
    assert_eq!(late.balances[..3], [1000, 500, 1500]);
}

#[test]
fn draws_transfers_between_two_accounts() {
    for number in 0..1000 {
        let Transfer { from, to, cents } = Transfer::random((1, 0, number));
        assert!(from < ACCOUNTS && to < ACCOUNTS && from != to);
        assert!((10..=400).contains(&cents) && cents % 10 == 0);
    }
}
