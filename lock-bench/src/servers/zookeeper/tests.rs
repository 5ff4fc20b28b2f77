use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};

use super::super::testing::{commands_of_a_pair, excludes};
use super::*;
use crate::subject::Subject as _;

async fn open_both(url: &str) -> (Asker, Least) {
    let url = LockUrl::parse(url).unwrap();
    let hosts = url.hosts().to_vec();
    let asker = Asker::new(connect(&url).await.unwrap(), hosts);
    (asker, Least::new(connect(&url).await.unwrap(), &url))
}

#[tokio::test]
async fn bare_requests_exclude() {
    let url = format!("{}/{}", ZooKeeperServer::shared().url(), "bench-excludes");
    excludes(open_both(&url).await.1).await;
}

#[tokio::test]
async fn bare_requests_are_counted() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let (asker, least) = open_both(&server.url()).await;
    let used = commands_of_a_pair(&asker, &least).await;
    // Besides them there are the heartbeats of two sessions.
    assert!((3.0..3.4).contains(&used), "{used}");
}

#[tokio::test]
async fn who_is_dropped_leaves_the_queue() {
    let url = format!("{}/{}", ZooKeeperServer::shared().url(), "bench-leaves");
    let (_, least) = open_both(&url).await;
    let key = least.key("left").unwrap();
    let ttl = Duration::from_secs(30);
    let held = least.acquire(&key, ttl, None).await.unwrap().unwrap();
    // Dropped as soon as its request is on the way.
    let mut waiter = Box::pin(least.acquire(&key, ttl, None));
    let waits = std::future::poll_fn(|context| {
        std::task::Poll::Ready(waiter.as_mut().poll(context).is_pending())
    });
    assert!(waits.await);
    drop(waiter);
    let next = tokio::spawn({
        let (least, key) = (least.clone(), Arc::clone(&key));
        async move { least.acquire(&key, ttl, None).await }
    });
    least.release(held).await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(5), next).await;
    let next = next.expect("the node in between is gone").unwrap();
    least.release(next.unwrap().unwrap()).await.unwrap();
}
