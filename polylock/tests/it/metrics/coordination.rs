//! Elections, and jobs that run once.

use std::sync::Arc;
use std::time::Duration;

use polylock::admin::LockAdmin as _;
use polylock::coordination::{CoordinationObserver, Election, Once};
use polylock::memory::Memory;
use polylock::prelude::*;

use super::observer;

#[tokio::test]
async fn terms_and_runs_are_counted_by_the_name_of_their_election_and_job() {
    let (observer, page) = observer();
    let observer: Arc<dyn CoordinationObserver> = Arc::new(observer);
    let store = Memory::new();
    let locks = || -> Arc<dyn DistributedLock> { Arc::new(store.client()) };
    let election = Election::new(locks(), "scheduler").unwrap();
    let election = election.observer(Arc::clone(&observer));
    let terms = || {
        let value = |name: &str| page.value(&format!(r#"polylock_{name}{{class="scheduler"}}"#));
        (value("leader"), value("elections_total"))
    };
    assert_eq!(terms(), (Some(0.0), Some(0.0)));
    let leadership = election.campaign().await.unwrap();
    assert_eq!(terms(), (Some(1.0), Some(1.0)));
    leadership.resign().await.unwrap();
    assert_eq!(terms(), (Some(0.0), Some(1.0)));
    let leadership = election.campaign().await.unwrap();
    store.expire(leadership.guard().key());
    assert!(leadership.guard().renew().await.is_err());
    assert_eq!(terms(), (Some(0.0), Some(2.0)), "lost");
    drop(leadership);
    assert_eq!(terms(), (Some(0.0), Some(2.0)));

    let report = Once::every(locks(), "report", Duration::from_secs(60)).unwrap();
    let report = report.observer(observer);
    let runs = |outcome: &str| {
        page.value(&format!(
            r#"polylock_once_total{{class="report",outcome="{outcome}"}}"#
        ))
    };
    assert_eq!((runs("ran"), runs("lost")), (Some(0.0), Some(0.0)));
    let failed = report.run(async |_| Err::<(), _>("no paper")).await;
    assert_eq!(failed.unwrap().as_str(), "failed");
    let key = LockKey::new("report").unwrap();
    let lost = report.run(async |run| {
        store.break_lock(&key, "test").await?;
        let lost = tokio::time::timeout(Duration::from_secs(60), run.lost()).await;
        lost.expect("the loss is signaled");
        Ok::<_, Error>(())
    });
    assert!(lost.await.is_err());
    for expected in ["ran", "skipped"] {
        let ended = report.run(async |_| Ok::<_, String>(())).await.unwrap();
        assert_eq!(ended.as_str(), expected);
    }
    for outcome in ["failed", "lost", "ran", "skipped"] {
        assert_eq!(runs(outcome), Some(1.0), "{outcome}");
    }
    assert_eq!(page.sum("polylock_once_total", ""), 4.0);
}

#[tokio::test]
async fn a_term_ends_where_it_was_counted() {
    let (observer, page) = observer();
    let store = Memory::new();
    let election = Election::new(Arc::new(store.client()), "scheduler").unwrap();
    let observed = election.clone().observer(Arc::new(observer));
    let leads = || page.value(r#"polylock_leader{class="scheduler"}"#);
    let first = observed.campaign().await.unwrap();
    assert_eq!(leads(), Some(1.0));
    store.expire(first.guard().key());
    // The first term has not noticed its loss.
    let second = election.campaign().await.unwrap();
    assert_eq!(leads(), Some(0.0));
    drop((first, second));
    assert_eq!(leads(), Some(0.0));
}
