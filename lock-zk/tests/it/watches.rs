//! More waiters than a session can have watches.

use polylock_core::{DistributedLock, Wait};
use tokio::time::sleep;
use zookeeper_client::{Client, Error};

use crate::support::{Place, SOON, granted, ms, release_clean, request, take, waiting};

/// With this length, a third of a thousand keys fill the budget of watches.
fn key(n: usize) -> String {
    format!("{n:0>240}")
}

const KEYS: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_without_a_watch_outlast_an_outage_and_are_served() {
    let place = Place::new().await;
    let other = place.elsewhere().await;
    let locks = place.with_session(SOON * 2).await;
    let mut held = Vec::new();
    let mut waiters = Vec::new();
    for n in 0..KEYS {
        held.push(take(&other, &key(n)).await);
        let one = request(&key(n)).with_wait(Wait::AtMost(SOON * 8));
        waiters.push(waiting(&locks, one));
    }
    for n in 0..KEYS {
        place.contenders(&key(n), 2).await;
    }
    let session = async |n: usize, at: usize| {
        let node = place.tree().nodes(&key(n)).await.remove(at);
        place.owner(&key(n), &node).await
    };
    let before = session(0, 1).await;
    place.proxy().cut();
    sleep(ms(1_000)).await;
    for guard in held {
        release_clean(guard).await;
    }
    let mut guards = Vec::new();
    for waiter in waiters {
        guards.push(granted(waiter).await);
    }
    assert_eq!(session(KEYS - 1, 0).await, before, "another session");
    drop(guards);
    assert!(locks.shutdown(SOON).await);
}

/// Why a session watches no more than its budget: when this fails, the client can do without it.
#[tokio::test]
async fn the_client_itself_ends_its_session_where_its_watches_take_two_packets() {
    let place = Place::new().await;
    let address = format!("127.0.0.1:{}", place.proxy().port());
    // A packet takes 128 KiB of paths.
    for (watches, is_kept) in [(400, true), (600, false)] {
        let client = Client::connector().with_session_timeout(ms(4_000));
        let client = client.connect(&address).await.expect("it connects");
        let paths: Vec<_> = (0..watches).map(|n| format!("/{}", key(n))).collect();
        let watchers = paths.iter().map(|path| client.check_and_watch_stat(path));
        let watchers = futures_util::future::join_all(watchers).await;
        assert!(watchers.iter().all(Result::is_ok));
        place.proxy().cut();
        let answer = loop {
            match client.check_stat("/").await {
                Err(Error::ConnectionLoss | Error::Custom(_) | Error::UnexpectedError(_)) => {}
                answer => break answer,
            }
        };
        assert_eq!(answer.is_ok(), is_kept, "{watches} watches: {answer:?}");
    }
}
