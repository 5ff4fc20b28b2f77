//! Networks that are slow or fail again and again: one holder at a time, and nothing left behind.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{DistributedLock, Mode, Wait};
use lock_testkit::history::{Checker, Recorder};
use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use lock_zk::ZooKeeper;
use tokio::time::{Instant, sleep};

use crate::support::{Dice, Place, SESSION, SOON, config, ms, open, release_clean, request, take};

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
    assert_eq!(error.kind(), lock_core::ErrorKind::Contended, "{error}");
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

/// Takes and gives back locks until the end, whatever becomes of them.
async fn work(locks: Arc<ZooKeeper>, recorder: Recorder, mut dice: Dice, end: Instant) -> usize {
    let mut grants = 0;
    while Instant::now() < end {
        let mode = match dice.below(4) {
            0 => Mode::Shared,
            _ => Mode::Exclusive,
        };
        let one = request(["a", "b"][dice.below(2) as usize]).with_mode(mode);
        let one = one.with_wait(Wait::AtMost(ms(200 + dice.below(4_000))));
        let Ok(guard) = recorder.acquire(&*locks, &one).await else {
            sleep(ms(20)).await;
            continue;
        };
        grants += 1;
        let until = Instant::now() + ms(dice.below(600));
        while guard.look() && Instant::now() < until {
            sleep(ms(15)).await;
        }
        match dice.below(3) {
            0 => drop(guard),
            _ => drop(guard.release().await),
        }
    }
    grants
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn networks_and_a_server_that_fail_at_random_let_nobody_in_beside_a_holder() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let place = Place::at(server.port()).await;
    let recorder = Recorder::new();
    let end = Instant::now() + Duration::from_secs(20);
    let (mut proxies, mut clients, mut workers) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..4 {
        let proxy = Proxy::zookeeper(server.port());
        let locks = open(config(&[proxy.port()], place.root())).await;
        for m in 0..3 {
            let dice = Dice(n * 10 + m);
            let work = work(Arc::clone(&locks), recorder.clone(), dice, end);
            workers.push(tokio::spawn(work));
        }
        proxies.push(proxy);
        clients.push(locks);
    }
    let mut dice = Dice(7);
    while Instant::now() < end {
        let proxy = &proxies[dice.below(4) as usize];
        match dice.below(6) {
            0 | 1 => proxy.cut(),
            2 => {
                proxy.refuse();
                proxy.cut();
                sleep(ms(dice.below(3_000))).await;
                proxy.accept();
            }
            3 | 4 => {
                let ways = [Direction::Both, Direction::Requests, Direction::Replies];
                let way = ways[dice.below(3) as usize];
                proxy.hold(way);
                sleep(ms(dice.below(3_000))).await;
                proxy.resume(way);
            }
            _ => {
                server.stop();
                sleep(ms(dice.below(1_500))).await;
                server.resume();
            }
        }
        sleep(ms(dice.below(300))).await;
    }
    let mut grants = 0;
    for worker in workers {
        grants += worker.await.expect("no panic");
    }
    assert!(grants > 50, "{grants} grants");
    for locks in &clients {
        assert!(locks.shutdown(SOON).await, "background work does not end");
    }
    // Nodes of sessions that were given up are there until their time is over.
    for name in ["a", "b"] {
        place.contenders(name, 0).await;
        drop(take(&clients[0], name).await);
    }
    Checker::new().check(&recorder.events()).assert_clean();
}
