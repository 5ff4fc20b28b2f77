//! Requests with one key, over several processes.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use http::StatusCode;
use lock_testkit::servers::{RedisOptions, RedisServer};

use super::app::Setup;
use super::client::{Reply, load};
use super::instance::Instance;
use super::ledger::Ledger;
use super::support::percentile;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_on_one_key_are_serial_on_redis() {
    let redis = RedisServer::start(RedisOptions::new());
    let told = assert_serial(&redis.url(), 10_000).await;
    println!("{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_on_one_key_are_serial_on_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite://{}/locks.db", dir.path().display());
    let told = assert_serial(&url, 500).await;
    println!("{told}");
}

/// So that it is known that the tests above can fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "two were in it at once")]
async fn instances_whose_locks_are_not_the_same_are_caught() {
    let told = assert_serial("memory:", 500).await;
    println!("{told}");
}

/// Sends the requests to three instances, looks at what they did, and tells how long it took.
async fn assert_serial(url: &str, requests: usize) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(url, dir.path());
    let mut instances = Vec::new();
    for _ in 0..3 {
        instances.push(Instance::start(&setup).await);
    }
    let addresses: Vec<SocketAddr> = instances.iter().map(|one| one.address).collect();
    let began = std::time::Instant::now();
    let replies = load(&addresses, 24, requests, |_| "/work/hot".to_owned()).await;
    let took = began.elapsed();

    let refused = replies.iter().find(|reply| reply.status != StatusCode::OK);
    assert!(refused.is_none(), "a request was not served: {refused:?}");
    let ledger = Ledger::new(dir.path());
    assert_eq!(ledger.overlaps("hot"), 0, "two were in it at once");
    assert_eq!(ledger.count("hot"), requests as u64, "updates are lost");
    assert_each_once(&ledger, &replies);
    let tokens: Vec<u64> = ledger.entries("hot").iter().map(|one| one.token).collect();
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "the tokens do not increase"
    );
    let p99 = percentile(replies.iter().map(|reply| reply.took), 99);
    format!("{requests} requests in {took:.1?}, p99 {p99:.1?}")
}

/// Nothing was lost or done twice, and each reply is that to its own request.
fn assert_each_once(ledger: &Ledger, replies: &[Reply]) {
    let sent: BTreeSet<_> = replies.iter().map(|reply| reply.id.clone()).collect();
    let entries = ledger.entries("hot");
    let done: BTreeSet<_> = entries.iter().map(|one| one.request.clone()).collect();
    assert_eq!(sent.len(), replies.len(), "a request was answered twice");
    assert_eq!(done.len(), entries.len(), "a request was handled twice");
    assert_eq!(sent, done);
    let mixed_up = replies.iter().find(|reply| reply.text() != reply.id);
    assert!(
        mixed_up.is_none(),
        "the answer to another request: {mixed_up:?}"
    );
}
