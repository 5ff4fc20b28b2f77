//! Many processes on one file.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::time::{Duration, Instant};

use crate::support::{Contender, Place, assert_increasing, numbers};
use lock_core::prelude::*;

#[test]
fn eight_processes_lose_no_increment() {
    const PROCESSES: u64 = 8;
    const ROUNDS: u64 = 50;
    let place = Place::new();
    let counter = place.file("counter");
    std::fs::write(&counter, "0").unwrap();
    // None of them makes the table before the others come.
    let more = [counter.to_str().unwrap(), &ROUNDS.to_string()];
    let start = |_| Contender::start("count", &place.database(), &more);
    let contenders: Vec<_> = (0..PROCESSES).map(start).collect();
    contenders.into_iter().for_each(Contender::finish);
    let counted = std::fs::read_to_string(&counter).unwrap();
    assert_eq!(counted, (PROCESSES * ROUNDS).to_string());
    let tokens = numbers(&counter.with_extension("tokens"));
    assert_eq!(tokens.len() as u64, PROCESSES * ROUNDS);
    assert_increasing(&tokens);
}

#[tokio::test]
async fn locks_are_free_after_their_holders_are_killed_at_any_time() {
    let place = Place::new();
    let log = |key| numbers(&place.file(key));
    let start = || {
        Contender::start(
            "churn",
            &place.database(),
            &[place.directory.path().to_str().unwrap()],
        )
    };
    let mut contenders: Vec<_> = (0..4).map(|_| start()).collect();
    let (begin, mut round) = (Instant::now(), 0);
    while round < 40 || KEYS.iter().any(|key| log(key).len() < 5) {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "some lock is never taken"
        );
        // At another point of what the process does each time.
        tokio::time::sleep(Duration::from_micros(7_919 * round % 50_021)).await;
        let index = usize::try_from(round).unwrap() % contenders.len();
        contenders[index].assert_running();
        contenders[index].kill();
        contenders[index] = start();
        round += 1;
    }
    contenders.iter_mut().for_each(Contender::kill);
    let killed = Instant::now();
    let locks = place.open().await;
    for key in KEYS {
        let guard = locks
            .lock_within(key, Duration::from_secs(10))
            .await
            .unwrap();
        // The ttl of the killed processes, the longest pause of a waiter, and a busy machine.
        assert!(killed.elapsed() < Duration::from_millis(1000 + 20 + 2000));
        let tokens = log(key);
        assert_increasing(&tokens);
        assert!(guard.fencing_token().unwrap().value() > *tokens.last().unwrap());
    }
    let intact = sqlx::query_scalar::<_, String>("PRAGMA integrity_check");
    assert_eq!(
        intact.fetch_one(&mut place.sql().await).await.unwrap(),
        "ok"
    );
}

/// The locks that `churn` takes, each with a log of that name.
const KEYS: [&str; 4] = ["0", "1", "2", "3"];
