//! Contenders of kazoo, the client of Python, in the same line as ours.

use lock_core::{AcquireRequest, DistributedLock, ErrorKind, LockGuard, LostReason, Mode, Wait};
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use lock_testkit::taker::Taker;
use lock_zk::{Compat, ZooKeeper};
use tokio::task::JoinHandle;

use crate::support::{
    Foreign, Kazoo, SESSION, SOON, Site, THEIR_SESSION, key, loss, ms, open, request, take, timed,
    until, waiting,
};

/// Who takes part: ours by the names of the one, kazoo by the recipe of the other.
const PAIRS: [(Compat, Kazoo); 3] = [
    (Compat::Curator, Kazoo::Curator),
    (Compat::Kazoo, Kazoo::Lock),
    (Compat::Kazoo, Kazoo::WriteLock),
];

async fn ours(site: &Site, compat: Compat) -> std::sync::Arc<ZooKeeper> {
    open(site.config().with_compat(compat)).await
}

async fn theirs(site: &Site, recipe: Kazoo, name: &str) -> Foreign {
    Foreign::kazoo(&site.addresses(), recipe, &site.tree.directory("a"), name).await
}

fn shared() -> AcquireRequest {
    request("a").with_mode(Mode::Shared)
}

async fn granted(waiter: JoinHandle<lock_core::Result<LockGuard>>) -> LockGuard {
    let granted = waiter.await.expect("no panic");
    granted.expect("it is granted")
}

async fn exclude_each_other(compat: Compat, recipe: Kazoo) {
    let site = Site::shared().await;
    let locks = ours(&site, compat).await;
    let mut kazoo = theirs(&site, recipe, "etl@host-7").await;
    // Theirs excludes ours, and can be seen.
    kazoo.take().await;
    let refused = locks.acquire(&request("a").with_wait(Wait::Never)).await;
    assert_eq!(
        refused.expect_err("two hold it").kind(),
        ErrorKind::Contended
    );
    let admin = locks.admin().expect("it has an administration");
    let seen = admin.inspect(&key("a")).await.expect("it answers");
    let seen = seen.expect("it is held");
    assert_eq!(seen.holders[0].label.note(), "etl@host-7");
    assert_eq!((seen.holders.len(), seen.mode), (1, Mode::Exclusive));
    // Their release wakes ours.
    let waiter = waiting(&locks, request("a"));
    site.contenders("a", 2).await;
    assert!(!waiter.is_finished());
    kazoo.release().await;
    let (guard, took) = timed(granted(waiter)).await;
    assert!(took < ms(1_000), "{took:?}");
    // Ours excludes theirs, and its release wakes theirs.
    assert!(!kazoo.tries().await, "two hold it");
    site.contenders("a", 1).await;
    kazoo.send("take");
    site.contenders("a", 2).await;
    assert!(!kazoo.has_answered());
    guard.release().await.expect("it is released");
    let (answer, took) = timed(kazoo.answer()).await;
    assert!(answer == "yes" && took < ms(1_000), "{took:?}");
    kazoo.release().await;
    site.contenders("a", 0).await;
}

#[tokio::test]
async fn locks_of_kazoo_and_ours_exclude_and_wake_each_other() {
    for (compat, recipe) in PAIRS {
        exclude_each_other(compat, recipe).await;
    }
}

#[tokio::test]
async fn the_line_is_one_for_both() {
    for (compat, recipe) in PAIRS {
        let site = Site::shared().await;
        let locks = ours(&site, compat).await;
        let first = take(&locks, "a").await;
        let (mut guards, mut kazoos) = (Vec::new(), Vec::new());
        for turn in 0..3 {
            guards.push(waiting(&locks, request("a").with_wait(Wait::Forever)));
            site.contenders("a", 2 + 2 * turn).await;
            let mut kazoo = theirs(&site, recipe, "k").await;
            kazoo.send("take");
            site.contenders("a", 3 + 2 * turn).await;
            kazoos.push(kazoo);
        }
        first.release().await.expect("it is released");
        for turn in 0..3 {
            let (guard, _) = timed(granted(guards.remove(0))).await;
            let early = kazoos.iter().any(Foreign::has_answered);
            assert!(!early && !guards.iter().any(JoinHandle::is_finished));
            guard.release().await.expect("it is released");
            assert_eq!(timed(kazoos[turn].answer()).await.0, "yes");
            let early = kazoos[turn + 1..].iter().any(Foreign::has_answered);
            assert!(!early && !guards.iter().any(JoinHandle::is_finished));
            kazoos[turn].release().await;
        }
        site.contenders("a", 0).await;
    }
}

#[tokio::test]
async fn readers_and_writers_of_both_keep_to_the_same_rules() {
    let site = Site::shared().await;
    let locks = ours(&site, Compat::Kazoo).await;
    let mut reader = theirs(&site, Kazoo::ReadLock, "reader").await;
    let mut writer = theirs(&site, Kazoo::WriteLock, "writer").await;
    // Readers of both hold it together.
    reader.take().await;
    let guard = locks.acquire(&shared()).await.expect("it is granted");
    let admin = locks.admin().expect("it has an administration");
    let seen = admin.inspect(&key("a")).await.expect("it answers");
    let seen = seen.expect("it is held");
    assert_eq!((seen.holders.len(), seen.mode), (2, Mode::Shared));
    // Writers of both wait for the readers of the other, and for each other.
    assert!(!writer.tries().await, "a writer beside readers");
    let next = waiting(&locks, request("a"));
    site.contenders("a", 3).await;
    guard.release().await.expect("it is released");
    site.contenders("a", 2).await;
    assert!(!next.is_finished(), "a writer beside a reader of kazoo");
    writer.send("take");
    site.contenders("a", 3).await;
    reader.release().await;
    let mut guard = timed(granted(next)).await.0;
    // Ours that becomes a reader leaves their writer where it is, and lets their reader in.
    let late = waiting(&locks, shared());
    site.contenders("a", 3).await;
    guard.downgrade().await.expect("it can be downgraded");
    assert!(!writer.has_answered() && !late.is_finished());
    guard.release().await.expect("it is released");
    assert_eq!(timed(writer.answer()).await.0, "yes");
    assert!(!late.is_finished(), "a reader beside a writer of kazoo");
    writer.release().await;
    let guard = timed(granted(late)).await.0;
    assert!(reader.tries().await, "readers exclude each other");
    reader.release().await;
    guard.release().await.expect("it is released");
}

#[tokio::test]
async fn a_kazoo_that_is_killed_frees_the_lock_with_its_session() {
    let site = Site::shared().await;
    let locks = ours(&site, Compat::Kazoo).await;
    let mut kazoo = theirs(&site, Kazoo::Lock, "doomed").await;
    kazoo.take().await;
    let waiter = waiting(&locks, request("a"));
    site.contenders("a", 2).await;
    kazoo.kill();
    let (guard, took) = timed(granted(waiter)).await;
    // A heartbeat of kazoo is a third of its time-out old at most.
    assert!(took > THEIR_SESSION / 2, "{took:?}");
    assert!(took < THEIR_SESSION + ms(2_000), "{took:?}");
    guard.release().await.expect("it is released");
}

#[tokio::test]
async fn a_process_of_ours_that_is_killed_frees_the_lock_for_kazoo() {
    let site = Site::shared().await;
    let mut doomed = taker(&site).take(&key("a")).spawn().expect("it starts");
    site.contenders("a", 1).await;
    let mut kazoo = theirs(&site, Kazoo::Lock, "next").await;
    kazoo.send("take");
    site.contenders("a", 2).await;
    doomed.kill().expect("it is killed");
    let (answer, took) = timed(kazoo.answer()).await;
    assert_eq!(answer, "yes");
    assert!(took < SESSION + ms(2_000), "{took:?}");
    kazoo.release().await;
}

#[tokio::test]
async fn ours_learns_that_kazoo_or_anybody_deleted_its_node() {
    let site = Site::shared().await;
    let locks = ours(&site, Compat::Kazoo).await;
    let guard = take(&locks, "a").await;
    let mut kazoo = theirs(&site, Kazoo::Lock, "next").await;
    kazoo.send("take");
    site.contenders("a", 2).await;
    let nodes = site.tree.nodes("a").await;
    site.tree.delete("a", &nodes[0]).await;
    assert_eq!(loss(&guard).await, LostReason::Broken);
    assert_eq!(kazoo.answer().await, "yes");
    drop(guard);
    assert!(locks.shutdown(SOON).await);
    kazoo.release().await;
}

fn taker(site: &Site) -> Taker {
    let millis = SESSION.as_millis();
    let (servers, root) = (site.addresses(), &site.root);
    let url = format!("zk://{servers}{root}?compat=kazoo&session-timeout={millis}ms");
    Taker::example("zk-taker", url)
}

#[tokio::test]
async fn no_increment_of_either_is_lost() {
    let site = Site::shared().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "0").expect("it is written");
    let mut kazoos = Vec::new();
    for _ in 0..2 {
        kazoos.push(theirs(&site, Kazoo::Lock, "k").await);
    }
    let taker = taker(&site);
    let process = || {
        let work = taker.take(&key("a")).with_rounds(50).with_wait(SOON * 6);
        let work = work.with_hold(ms(0)).with_increment(file.path());
        work.spawn().expect("it starts")
    };
    let processes = [process(), process()];
    for kazoo in &mut kazoos {
        kazoo.send(&format!("increment {} 50", file.path().display()));
    }
    for kazoo in &mut kazoos {
        assert_eq!(kazoo.answer().await, "done");
    }
    for mut process in processes {
        assert!(process.wait().expect("it ends").success());
    }
    let sum = std::fs::read_to_string(file.path()).expect("it is there");
    assert_eq!(sum.split_whitespace().next(), Some("200"));
}

/// Kazoo makes sure of the directory once, and fails if it is gone later.
#[tokio::test]
async fn a_directory_for_kazoo_outlives_the_locks_in_it() {
    let options = ZooKeeperOptions::new().with_property("znode.container.checkIntervalMs", "100");
    let server = ZooKeeperServer::start(options);
    let site = Site::of(&server).await;
    let locks = ours(&site, Compat::Kazoo).await;
    let mut kazoo = theirs(&site, Kazoo::Lock, "k").await;
    let guard = take(&locks, "a").await;
    assert!(!kazoo.tries().await, "two hold it");
    guard.release().await.expect("it is released");
    // The server sweeps others away meanwhile.
    let curator = ours(&site, Compat::Curator).await;
    for name in ["b", "c"] {
        take(&curator, name)
            .await
            .release()
            .await
            .expect("released");
        let gone = async || !site.tree.exists(name).await;
        until("an empty directory is deleted", gone).await;
    }
    assert_eq!(kazoo.order("try").await, "yes");
    kazoo.release().await;
}
