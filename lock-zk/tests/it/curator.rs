//! Contenders of Apache Curator, the client of Java, in the same line as ours.

use lock_core::{AcquireRequest, DistributedLock, ErrorKind, LockGuard, Mode, Wait};
use lock_zk::Compat;
use tokio::task::JoinHandle;

use crate::support::{
    Curator, Foreign, Site, THEIR_SESSION, key, ms, open, request, take, timed, waiting,
};

/// Who takes part: ours by the names of the one, Curator by the recipe of the other.
const PAIRS: [(Compat, Curator); 2] = [
    (Compat::Curator, Curator::Mutex),
    (Compat::CuratorReadWrite, Curator::Writer),
];

async fn theirs(site: &Site, recipe: Curator) -> Foreign {
    Foreign::curator(&site.addresses(), recipe, &site.tree.directory("a")).await
}

async fn granted(waiter: JoinHandle<lock_core::Result<LockGuard>>) -> LockGuard {
    let granted = timed(waiter).await.0.expect("no panic");
    granted.expect("it is granted")
}

fn shared() -> AcquireRequest {
    request("a").with_mode(Mode::Shared)
}

#[tokio::test]
async fn locks_of_curator_and_ours_exclude_and_wake_each_other_in_one_line() {
    for (compat, recipe) in PAIRS {
        let site = Site::shared().await;
        let locks = open(site.config().with_compat(compat)).await;
        let mut curator = theirs(&site, recipe).await;
        curator.take().await;
        let refused = locks.acquire(&request("a").with_wait(Wait::Never)).await;
        let refused = refused.expect_err("two hold it");
        assert_eq!(refused.kind(), ErrorKind::Contended);
        // It writes its address into its node.
        let admin = locks.admin().expect("it has an administration");
        let seen = admin.inspect(&key("a")).await.expect("it answers");
        let seen = seen.expect("it is held");
        assert_eq!((seen.holders.len(), seen.mode), (1, Mode::Exclusive));
        assert!(!seen.holders[0].label.note().is_empty());
        let waiter = waiting(&locks, request("a"));
        site.contenders("a", 2).await;
        assert!(!waiter.is_finished());
        curator.release().await;
        let guard = granted(waiter).await;
        assert!(!curator.tries().await, "two hold it");
        // Ours, theirs and ours again.
        curator.send("take");
        site.contenders("a", 2).await;
        let last = waiting(&locks, request("a").with_wait(Wait::Forever));
        site.contenders("a", 3).await;
        guard.release().await.expect("it is released");
        assert_eq!(timed(curator.answer()).await.0, "yes");
        assert!(!last.is_finished(), "two hold it");
        curator.release().await;
        granted(last).await.release().await.expect("it is released");
        site.contenders("a", 0).await;
    }
}

#[tokio::test]
async fn readers_and_writers_of_both_keep_to_the_same_rules() {
    let site = Site::shared().await;
    let locks = open(site.config().with_compat(Compat::CuratorReadWrite)).await;
    let mut reader = theirs(&site, Curator::Reader).await;
    let mut writer = theirs(&site, Curator::Writer).await;
    reader.take().await;
    let guard = locks.acquire(&shared()).await.expect("readers share it");
    assert!(!writer.tries().await, "a writer beside readers");
    let next = waiting(&locks, request("a"));
    site.contenders("a", 3).await;
    guard.release().await.expect("it is released");
    site.contenders("a", 2).await;
    assert!(!next.is_finished(), "a writer beside a reader of Curator");
    reader.release().await;
    let mut guard = granted(next).await;
    reader.send("take");
    site.contenders("a", 2).await;
    assert!(!reader.has_answered(), "a reader beside a writer");
    // Ours that becomes a reader lets theirs in.
    guard.downgrade().await.expect("it can be downgraded");
    assert_eq!(timed(reader.answer()).await.0, "yes");
    writer.send("take");
    site.contenders("a", 3).await;
    let late = waiting(&locks, shared());
    site.contenders("a", 4).await;
    guard.release().await.expect("it is released");
    reader.release().await;
    assert_eq!(timed(writer.answer()).await.0, "yes");
    assert!(!late.is_finished(), "a reader beside a writer of Curator");
    writer.release().await;
    granted(late).await.release().await.expect("it is released");
}

#[tokio::test]
async fn a_curator_that_is_killed_frees_the_lock_with_its_session() {
    let site = Site::shared().await;
    let locks = site.client().await;
    let mut curator = theirs(&site, Curator::Mutex).await;
    let guard = take(&locks, "a").await;
    curator.send("take");
    site.contenders("a", 2).await;
    guard.release().await.expect("it is released");
    assert_eq!(curator.answer().await, "yes");
    let waiter = waiting(&locks, request("a"));
    site.contenders("a", 2).await;
    curator.kill();
    let (guard, took) = timed(granted(waiter)).await;
    assert!(took < THEIR_SESSION + ms(2_000), "{took:?}");
    guard.release().await.expect("it is released");
}
