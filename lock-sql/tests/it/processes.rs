//! Many processes on one file.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::support::Place;
use lock_testkit::history::What;
use lock_testkit::locks::release;
use lock_testkit::taker::{Taker, TakerProcess};
use polylock_core::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_intact_after_processes_were_killed_at_any_time() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.database().display());
    let start = |n: u64| {
        let key = LockKey::new((n % 2).to_string()).unwrap();
        let take = Taker::example("lock-taker", &url).take(&key);
        let take = take.with_ttl(Duration::from_secs(1)).with_wait(SOON);
        take.with_hold(Duration::ZERO)
            .with_rounds(100_000)
            .spawn()
            .unwrap()
    };
    let mut running: VecDeque<_> = (0..4).map(start).collect();
    for round in 0..32_u64 {
        let mut process = running.pop_front().unwrap();
        let begins = |what: &What| matches!(what, What::Requested { .. });
        process.told(SOON, begins).await;
        // At another point of what the process does each time.
        tokio::time::sleep(Duration::from_micros(7_919 * round % 50_021)).await;
        process.kill().unwrap();
        running.push_back(start(round));
    }
    for mut process in running {
        process.kill().unwrap();
    }
    let locks = place.open().await;
    for key in ["0", "1"] {
        let guard = locks.lock_within(key, SOON).await;
        release(guard.expect("the lock of the dead is free")).await;
    }
    let intact = sqlx::query_scalar::<_, String>("PRAGMA integrity_check");
    let intact = intact.fetch_one(&mut place.sql().await).await.unwrap();
    assert_eq!(intact, "ok");
}

/// Four processes, one for each URL, that take one lock again as soon as they have released it.
async fn assert_served_alike(urls: [&str; 4]) {
    let key = LockKey::new("wanted").expect("a key");
    let start = |url: &str| {
        let take = Taker::example("lock-taker", url).take(&key);
        let take = take.with_wait(SOON).with_hold(Duration::from_millis(2));
        take.with_rounds(1_000_000).spawn().expect("it starts")
    };
    let mut running: Vec<_> = urls.into_iter().map(start).collect();
    let is_granted = |what: &What| matches!(what, What::Granted { .. });
    for process in &running {
        process.told(SOON, is_granted).await;
    }
    let grants = |process: &TakerProcess| {
        let events = process.events();
        events
            .iter()
            .filter(|event| is_granted(&event.what))
            .count()
    };
    let before: Vec<_> = running.iter().map(grants).collect();
    let count = || -> Vec<_> {
        let now = running.iter().map(grants);
        now.zip(&before).map(|(now, before)| now - before).collect()
    };
    let are_alike = |served: &[usize]| {
        let least = served.iter().min().expect("there are four");
        let most = served.iter().max().expect("there are four");
        *most > 20 && least * 2 >= *most
    };
    let deadline = Instant::now() + SOON;
    let mut served = count();
    while served.iter().sum::<usize>() < 200 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
        served = count();
    }
    if !are_alike(&served) {
        // One process may have stalled, which counts for less in a longer time.
        tokio::time::sleep(deadline.saturating_duration_since(Instant::now())).await;
        served = count();
    }
    for process in &mut running {
        process.kill().expect("it is there");
    }
    assert!(are_alike(&served), "{served:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_served_alike_by_a_file() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.database().display());
    assert_served_alike([&url; 4]).await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread")]
async fn processes_are_served_alike_by_leases_of_mariadb() {
    let database = lock_testkit::servers::MariaDbServer::shared().database();
    assert_served_alike([&format!("{database}?mode=lease"); 4]).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn processes_are_served_alike_by_leases_of_postgres() {
    let database = lock_testkit::servers::PostgresServer::shared().database();
    assert_served_alike([&format!("{database}?mode=lease"); 4]).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn processes_that_listen_are_served_like_those_that_poll() {
    let database = lock_testkit::servers::PostgresServer::shared().database();
    let listens = format!("{database}?mode=lease");
    let polls = format!("{listens}&notify=off");
    assert_served_alike([&listens, &polls, &listens, &polls]).await;
}

/// The ttl of the killed processes, and a busy machine.
const SOON: Duration = Duration::from_secs(15);
