//! Many processes on one file.

use std::collections::VecDeque;
use std::time::Duration;

use crate::support::Place;
use lock_core::prelude::*;
use lock_testkit::history::What;
use lock_testkit::taker::Taker;

/// Whatever a process was writing: its lease ends, and the database is whole.
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
        guard
            .expect("the lock of the dead is free")
            .release()
            .await
            .unwrap();
    }
    let intact = sqlx::query_scalar::<_, String>("PRAGMA integrity_check");
    let intact = intact.fetch_one(&mut place.sql().await).await.unwrap();
    assert_eq!(intact, "ok");
}

/// The ttl of the killed processes, and a busy machine.
const SOON: Duration = Duration::from_secs(15);
