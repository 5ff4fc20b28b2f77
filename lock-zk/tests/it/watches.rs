//! More is waited for than a session may watch.

use lock_core::{DistributedLock, Released, Wait};
use tokio::time::sleep;

use crate::support::{Place, SOON, ms, open, request, take, waiting};

/// Of this length, a third of a thousand fill what is watched.
fn key(n: usize) -> String {
    format!("{n:0>240}")
}

const KEYS: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_without_a_watch_outlast_an_outage_and_are_served() {
    let place = Place::new().await;
    let other = place.elsewhere().await;
    let config = place.config().with_session_timeout(SOON * 2);
    let locks = open(config.expect("it is in range")).await;
    let mut held = Vec::new();
    let mut waiters = Vec::new();
    for n in 0..KEYS {
        held.push(take(&other, &key(n)).await);
        let one = request(&key(n)).with_wait(Wait::AtMost(SOON * 8));
        waiters.push(waiting(&locks, one));
    }
    for n in 0..KEYS {
        place.contenders_in_order(&key(n), 2).await;
    }
    let session = async |n: usize, at: usize| {
        let node = place.tree().nodes(&key(n)).await.remove(at);
        place.owner(&key(n), &node).await
    };
    let before = session(0, 1).await;
    place.proxy().cut();
    sleep(ms(1_000)).await;
    for guard in held {
        let released = guard.release().await.expect("it is released");
        assert_eq!(released, Released::Clean);
    }
    let mut guards = Vec::new();
    for waiter in waiters {
        guards.push(waiter.await.expect("no panic").expect("it is granted"));
    }
    assert_eq!(session(KEYS - 1, 0).await, before, "another session");
    drop(guards);
    assert!(locks.shutdown(SOON).await);
}
