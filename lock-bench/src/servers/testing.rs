//! What every bare subject and every probe has to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::subject::Subject;
use crate::target::Probe;

/// Two contenders never have the lock at a time, and one who does not wait is told that it is taken.
pub(super) async fn excludes<S: Subject>(subject: S) {
    let key = subject.key("excluded").unwrap();
    let is_held = Arc::new(AtomicBool::new(false));
    let contenders: Vec<_> = (0..2)
        .map(|_| {
            let (subject, key, is_held) = (subject.clone(), key.clone(), Arc::clone(&is_held));
            tokio::spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..ROUNDS {
                    let held = subject.acquire(&key, TTL, None).await.unwrap().unwrap();
                    assert!(!is_held.swap(true, Ordering::SeqCst), "two have it");
                    tokens.extend(S::token(&held));
                    tokio::task::yield_now().await;
                    is_held.store(false, Ordering::SeqCst);
                    subject.release(held).await.unwrap();
                }
                tokens
            })
        })
        .collect();
    let mut all = Vec::new();
    for contender in contenders {
        let tokens = contender.await.unwrap();
        assert!(tokens.is_sorted(), "{tokens:?}");
        all.extend(tokens);
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a token was given twice");

    let held = subject.acquire(&key, TTL, None).await.unwrap().unwrap();
    for wait in [Duration::ZERO, Duration::from_millis(20)] {
        let refused = subject.acquire(&key, TTL, Some(wait)).await.unwrap();
        assert!(refused.is_none(), "{wait:?}");
    }
    subject.release(held).await.unwrap();
    // The statement of who gave up may be granted first, until its server sees that nobody listens.
    let free = subject.acquire(&key, TTL, Some(SOON)).await.unwrap();
    subject.release(free.unwrap()).await.unwrap();
}

/// What the server counts for one acquisition and release, by many of them. Others leave it alone
/// meanwhile, and what the probe itself asks does not count.
pub(super) async fn commands_of_a_pair<S: Subject>(probe: &dyn Probe, subject: &S) -> f64 {
    let key = subject.key("counted").unwrap();
    // The first one may make what the others find.
    let held = subject.acquire(&key, TTL, None).await.unwrap().unwrap();
    subject.release(held).await.unwrap();
    let before = probe.commands().await.unwrap().unwrap();
    for _ in 0..PAIRS {
        let held = subject.acquire(&key, TTL, None).await.unwrap().unwrap();
        subject.release(held).await.unwrap();
        probe.ping().await.unwrap();
    }
    probe.facts().await.unwrap();
    let used = probe.commands().await.unwrap().unwrap() - before;
    used as f64 / f64::from(PAIRS)
}

const ROUNDS: usize = 50;
const PAIRS: u32 = 50;
const TTL: Duration = Duration::from_secs(30);
/// Of what holds for no longer than a moment.
const SOON: Duration = Duration::from_secs(5);
