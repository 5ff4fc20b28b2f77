//! Networks that are slow or fail for many clients: one holder at a time, and nothing left behind.

use std::sync::Arc;

use lock_testkit::proxy::Direction;
use polylock_core::{DistributedLock, Wait};
use tokio::time::{Instant, sleep};

use crate::support::{Place, SESSION, SOON, ms, release_clean, request, take};

#[tokio::test]
async fn a_slow_network_makes_no_false_grant() {
    let place = Place::new().await;
    let (locks, other) = (place.patient().await, place.elsewhere().await);
    let holder = take(&other, "b").await;
    place.proxy().set_latency(Direction::Both, ms(150));
    let guard = take(&locks, "a").await;
    assert!(guard.is_held());
    place.assert_taken("a").await;
    let one = request("b").with_wait(Wait::AtMost(ms(400)));
    let error = locks.acquire(&one).await.expect_err("it is held");
    assert_eq!(error.kind(), polylock_core::ErrorKind::Contended, "{error}");
    sleep(SESSION * 2).await;
    assert!(guard.is_held(), "{:?}", guard.lost().reason());
    place.proxy().clear();
    place.proxy().set_drip(Direction::Both, 16, ms(2));
    release_clean(guard).await;
    let guard = take(&locks, "a").await;
    place.assert_taken("a").await;
    place.proxy().clear();
    drop((guard, holder));
    place.assert_nothing_left(&[&locks, &other], "a").await;
    place.assert_nothing_left(&[&locks, &other], "b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_that_reconnect_at_once_are_served() {
    let place = Place::new().await;
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(place.patient().await);
    }
    let before = place.proxy().connections();
    for _ in 0..3 {
        place.proxy().refuse();
        place.proxy().cut();
        let began = Instant::now();
        let mut tasks = Vec::new();
        for (n, locks) in clients.iter().enumerate() {
            let (locks, one) = (Arc::clone(locks), request(&format!("key-{}", n / 4)));
            tasks.push(tokio::spawn(async move {
                let guard = locks.acquire(&one.with_wait(Wait::AtMost(SOON * 4))).await;
                let guard = guard.unwrap_or_else(|error| panic!("{n}: {error}"));
                release_clean(guard).await;
            }));
        }
        sleep(ms(200)).await;
        place.proxy().accept();
        for task in tasks {
            task.await.expect("no panic");
        }
        assert!(began.elapsed() < SOON * 2, "{:?}", began.elapsed());
    }
    let made = place.proxy().connections() - before;
    assert!(made <= 100 * 3 * 3, "{made} connections");
    for n in 0..25 {
        place.contenders(&format!("key-{n}"), 0).await;
    }
}
