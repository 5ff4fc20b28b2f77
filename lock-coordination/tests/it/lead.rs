//! The loop that campaigns and works.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polylock_coordination::Election;
use polylock_core::memory::{Memory, Reachable};
use polylock_core::{Error, ErrorKind};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{TTL, candidate, has_stopped, key, memory, millis, secs};

/// A candidate that leads until it is aborted.
fn lead(election: &Election) -> JoinHandle<Error> {
    let election = election.clone();
    tokio::spawn(async move {
        election
            .lead(|_| std::future::pending::<Result<(), String>>())
            .await
    })
}

async fn elected(election: &Election) {
    let elected = timeout(secs(600), election.started_leading()).await;
    elected.expect("it is elected");
}

#[tokio::test(start_paused = true)]
async fn work_that_fails_or_returns_ends_the_term_and_others_lead_meanwhile() {
    let store = memory();
    let (here, there) = (candidate(&store, "a"), candidate(&store, "b"));
    let terms = Arc::new(AtomicUsize::new(0));
    let failing = tokio::spawn({
        let (here, terms) = (here.clone(), Arc::clone(&terms));
        async move {
            here.lead(|_| {
                let term = terms.fetch_add(1, Ordering::SeqCst);
                async move { if term == 0 { Ok(()) } else { Err("no work") } }
            })
            .await
        }
    });
    sleep(millis(1)).await;
    let mut elsewhere = None;
    for expected in 1..=6 {
        assert_eq!(terms.load(Ordering::SeqCst), expected);
        // Each pause is up to twice as long as the one before.
        elsewhere = Some(there.campaign().await.unwrap());
        assert!(has_stopped(&here));
        sleep(secs(20)).await;
        assert_eq!(store.waiters(&key()), 1, "it campaigns again");
        drop(elsewhere.take());
        sleep(millis(100)).await;
    }
    failing.abort();
    drop(elsewhere);
}

#[tokio::test(start_paused = true)]
async fn an_endless_loop_of_short_terms_asks_once_in_a_while() {
    let store = memory();
    let here = candidate(&store, "a");
    let looping = here.lead(|_| async { Err::<(), _>("no work") });
    assert!(timeout(secs(600), looping).await.is_err());
    let terms = store.faults().requests() / 2;
    assert!((60..=130).contains(&terms), "{terms} terms in 10 minutes");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_loop_drops_the_work_before_the_lock() {
    /// Looks into the store when it is dropped.
    struct Work(Arc<Memory>, Arc<AtomicUsize>);

    impl Drop for Work {
        fn drop(&mut self) {
            self.1.store(self.0.live_keys(), Ordering::SeqCst);
        }
    }

    let store = Arc::new(memory());
    let held = Arc::new(AtomicUsize::new(usize::MAX));
    let here = candidate(&store, "a");
    for is_lost in [false, true] {
        let leading = here.lead(|_| {
            let work = Work(Arc::clone(&store), Arc::clone(&held));
            async move {
                let _work = work;
                std::future::pending::<Result<(), String>>().await
            }
        });
        let leading = async {
            drop(timeout(secs(1), leading).await);
        };
        let losing = async {
            sleep(millis(500)).await;
            if is_lost {
                store.faults().set_reachable(Reachable::Cut);
            }
        };
        tokio::join!(leading, losing);
        assert_eq!(held.load(Ordering::SeqCst), 1, "the lock was there still");
        store.faults().set_reachable(Reachable::Connected);
        sleep(TTL * 2).await;
        let other = candidate(&store, "b").campaign().await.unwrap();
        other.resign().await.unwrap();
        held.store(usize::MAX, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_dropped_while_it_waits_or_pauses_leaves_nothing() {
    let store = memory();
    let held = candidate(&store, "holder").campaign().await.unwrap();
    let waiting = candidate(&store, "a");
    let waits = lead(&waiting);
    sleep(millis(1)).await;
    assert_eq!(store.waiters(&key()), 1);
    waits.abort();
    sleep(millis(1)).await;
    assert_eq!(store.waiters(&key()), 0);
    held.resign().await.unwrap();
    let pauses = waiting.lead(|_| async { Ok::<_, String>(()) });
    assert!(timeout(millis(200), pauses).await.is_err());
    assert_eq!(store.live_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_ends_the_loop_and_the_term() {
    let store = memory();
    let here = candidate(&store, "a");
    let panics = tokio::spawn({
        let here = here.clone();
        async move {
            here.lead(|_| async {
                sleep(millis(10)).await;
                panic!("a broken leader");
                #[expect(unreachable_code, reason = "the type of the work")]
                Ok::<(), String>(())
            })
            .await
        }
    });
    assert!(panics.await.unwrap_err().is_panic());
    assert!(has_stopped(&here));
    let next = timeout(millis(10), candidate(&store, "b").campaign()).await;
    assert!(next.is_ok_and(|next| next.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn an_error_that_no_repetition_mends_ends_the_loop() {
    let store = memory();
    let short = candidate(&store, "a").ttl(millis(1));
    let error = short.lead(|_| async { Ok::<_, String>(()) }).await;
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(store.faults().requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_until_it_is_back() {
    let store = memory();
    let here = candidate(&store, "a");
    store.faults().set_reachable(Reachable::Cut);
    let leading = lead(&here);
    sleep(secs(600)).await;
    assert!(!leading.is_finished() && has_stopped(&here));
    store.faults().set_reachable(Reachable::Connected);
    let back = Instant::now();
    elected(&here).await;
    let took = back.elapsed();
    assert!(
        took <= secs(10),
        "it leads {took:?} after the store is back"
    );

    // It leads, loses the lock, and leads again.
    store.faults().set_reachable(Reachable::Cut);
    here.stopped_leading().await;
    store.faults().set_reachable(Reachable::Connected);
    elected(&here).await;
    leading.abort();
}
