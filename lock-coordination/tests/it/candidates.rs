//! The cost of many candidates.

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{TTL, candidate, key, memory, millis, secs};

const CANDIDATES: usize = 1_000;

#[tokio::test(start_paused = true)]
async fn a_thousand_candidates_are_a_thousand_waiters_and_send_nothing_while_they_wait() {
    let store = memory();
    let mut campaigns = JoinSet::new();
    for n in 0..CANDIDATES {
        let candidate = candidate(&store, &format!("candidate {n}"));
        campaigns.spawn(async move { candidate.campaign().await });
        tokio::task::yield_now().await;
    }
    let mut leader = campaigns.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(store.waiters(&key()), CANDIDATES - 1);
    assert_eq!(store.faults().requests(), 1_000, "one for each");

    let before = store.faults().requests();
    sleep(secs(60)).await;
    let sent = store.faults().requests() - before;
    // The leader renews at a third of the ttl, or up to a tenth earlier.
    let thirds = 60 * 3 / TTL.as_secs();
    assert!(
        (thirds - 1..=thirds * 10 / 9).contains(&sent),
        "{sent} requests in a minute, renewals alone are {thirds}"
    );

    let (before, began) = (store.faults().requests(), Instant::now());
    for _ in 0..100 {
        let token = leader.fencing_token();
        leader.resign().await.unwrap();
        leader = campaigns.join_next().await.unwrap().unwrap().unwrap();
        assert!(leader.fencing_token() > token);
    }
    assert_eq!(store.faults().requests() - before, 100, "one for each term");
    let took = began.elapsed();
    assert!(took < millis(200), "100 terms took {took:?}");
    campaigns.shutdown().await;
    sleep(millis(1)).await;
    assert_eq!(store.waiters(&key()), 0);
}
