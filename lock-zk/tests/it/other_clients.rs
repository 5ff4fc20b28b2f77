//! Contenders of kazoo, the client of Python, and of Apache Curator, the client of Java, in the same
//! line as ours.

use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use lock_testkit::taker::Taker;
use polylock_core::{AcquireRequest, DistributedLock, ErrorKind, Mode, Wait};
use polylock_zk::{Compat, ZooKeeper};
use tokio::task::JoinHandle;

use crate::support::{
    Foreign, Place, Recipe, SESSION, SOON, assert_error, attempt, granted, key, ms, open, release,
    request, seen, take, timed, until,
};

/// The contenders: our clients with the node names of one library, and kazoo with the recipe of another.
const KAZOO: [(Compat, Recipe); 3] = [
    // With the names of Curator besides its own.
    (Compat::Curator, Recipe::Kazoo("Curator")),
    (Compat::Kazoo, LOCK),
    (Compat::Kazoo, Recipe::Kazoo("WriteLock")),
];

/// `Lock` of kazoo.
const LOCK: Recipe = Recipe::Kazoo("Lock");

/// `InterProcessMutex` and `writeLock()` of `InterProcessReadWriteLock`.
const CURATOR: [(Compat, Recipe); 2] = [
    (Compat::Curator, Recipe::Curator("Mutex")),
    (Compat::CuratorReadWrite, Recipe::Curator("Writer")),
];

async fn ours(place: &Place, compat: Compat) -> std::sync::Arc<ZooKeeper> {
    open(place.config().with_compat(compat)).await
}

async fn theirs(place: &Place, recipe: Recipe, name: &str) -> Foreign {
    Foreign::start(
        &place.addresses(),
        recipe,
        &place.tree().directory("a"),
        name,
    )
    .await
}

fn shared() -> AcquireRequest {
    request("a").with_mode(Mode::Shared)
}

async fn exclude_and_wake_each_other(compat: Compat, recipe: Recipe) {
    let is_kazoo = matches!(recipe, Recipe::Kazoo(_));
    let soon = if is_kazoo { ms(1_000) } else { SOON * 2 };
    let place = Place::new().await;
    let locks = ours(&place, compat).await;
    let mut other = theirs(&place, recipe, "etl@host-7").await;
    // Theirs excludes ours, and can be seen.
    other.take().await;
    assert_error(&locks, &attempt("a"), ErrorKind::Contended).await;
    let info = seen(&locks, "a").await.expect("it is held");
    assert_eq!((info.holders.len(), info.mode), (1, Mode::Exclusive));
    // Curator writes its address into its node.
    let note = info.holders[0].label.note();
    assert!(note == "etl@host-7" || !is_kazoo && !note.is_empty());
    // Their release wakes ours.
    let waiter = place.waiter(&locks, request("a")).await;
    assert!(!waiter.is_finished());
    other.release().await;
    let (guard, took) = timed(granted(waiter)).await;
    assert!(took < soon, "granted after {took:?}");
    // Ours excludes theirs, and its release wakes theirs and not the next of ours.
    assert!(!other.tries().await, "two holders");
    place.contenders("a", 1).await;
    other.send("take");
    place.contenders("a", 2).await;
    let last = place
        .waiter(&locks, request("a").with_wait(Wait::Forever))
        .await;
    assert!(!other.has_answered());
    release(guard).await;
    let (answer, took) = timed(other.answer()).await;
    assert!(answer == "yes" && took < soon, "{answer} after {took:?}");
    assert!(!last.is_finished(), "two holders");
    other.release().await;
    release(timed(granted(last)).await.0).await;
    place.contenders("a", 0).await;
}

#[tokio::test]
async fn locks_of_kazoo_and_ours_exclude_and_wake_each_other() {
    for (compat, recipe) in KAZOO {
        exclude_and_wake_each_other(compat, recipe).await;
    }
}

#[tokio::test]
async fn locks_of_curator_and_ours_exclude_and_wake_each_other_in_one_line() {
    for (compat, recipe) in CURATOR {
        exclude_and_wake_each_other(compat, recipe).await;
    }
}

#[tokio::test]
async fn the_line_is_one_for_both() {
    for (compat, recipe) in KAZOO {
        let place = Place::new().await;
        let locks = ours(&place, compat).await;
        let first = take(&locks, "a").await;
        let (mut guards, mut kazoos) = (Vec::new(), Vec::new());
        for turn in 0..3 {
            guards.push(
                place
                    .waiter(&locks, request("a").with_wait(Wait::Forever))
                    .await,
            );
            let mut kazoo = theirs(&place, recipe, "k").await;
            kazoo.send("take");
            place.contenders("a", 3 + 2 * turn).await;
            kazoos.push(kazoo);
        }
        release(first).await;
        for turn in 0..3 {
            let (guard, _) = timed(granted(guards.remove(0))).await;
            let early = kazoos.iter().any(Foreign::has_answered);
            assert!(!early && !guards.iter().any(JoinHandle::is_finished));
            release(guard).await;
            assert_eq!(timed(kazoos[turn].answer()).await.0, "yes");
            let early = kazoos[turn + 1..].iter().any(Foreign::has_answered);
            assert!(!early && !guards.iter().any(JoinHandle::is_finished));
            kazoos[turn].release().await;
        }
        place.contenders("a", 0).await;
    }
}

async fn readers_and_writers(compat: Compat, reader: Recipe, writer: Recipe) {
    let place = Place::new().await;
    let locks = ours(&place, compat).await;
    let mut reader = theirs(&place, reader, "reader").await;
    let mut writer = theirs(&place, writer, "writer").await;
    // Readers of both hold it together.
    reader.take().await;
    let guard = locks.acquire(&shared()).await.expect("it is granted");
    let info = seen(&locks, "a").await.expect("it is held");
    assert_eq!((info.holders.len(), info.mode), (2, Mode::Shared));
    // Writers of both wait for the readers of the other.
    assert!(!writer.tries().await, "a writer beside readers");
    let next = place.waiter(&locks, request("a")).await;
    release(guard).await;
    place.contenders("a", 2).await;
    assert!(!next.is_finished(), "a writer beside their reader");
    reader.release().await;
    let mut guard = timed(granted(next)).await.0;
    // Ours that becomes a reader lets their reader in, and their writer waits for both.
    reader.send("take");
    place.contenders("a", 2).await;
    assert!(!reader.has_answered(), "a reader beside a writer");
    guard.downgrade().await.expect("it can be downgraded");
    assert_eq!(timed(reader.answer()).await.0, "yes");
    writer.send("take");
    place.contenders("a", 3).await;
    release(guard).await;
    reader.release().await;
    assert_eq!(timed(writer.answer()).await.0, "yes");
    writer.release().await;
    // Ours that becomes a reader leaves their writer where it is, and ours behind it.
    let mut guard = take(&locks, "a").await;
    writer.send("take");
    place.contenders("a", 2).await;
    let late = place.waiter(&locks, shared()).await;
    guard.downgrade().await.expect("it can be downgraded");
    assert!(!writer.has_answered() && !late.is_finished());
    release(guard).await;
    assert_eq!(timed(writer.answer()).await.0, "yes");
    assert!(!late.is_finished(), "a reader beside their writer");
    writer.release().await;
    let guard = timed(granted(late)).await.0;
    assert!(reader.tries().await, "readers exclude each other");
    reader.release().await;
    release(guard).await;
}

#[tokio::test]
async fn readers_and_writers_of_kazoo_and_ours_keep_to_the_same_rules() {
    let (reader, writer) = (Recipe::Kazoo("ReadLock"), Recipe::Kazoo("WriteLock"));
    readers_and_writers(Compat::Kazoo, reader, writer).await;
}

#[tokio::test]
async fn readers_and_writers_of_curator_and_ours_keep_to_the_same_rules() {
    let (reader, writer) = (Recipe::Curator("Reader"), Recipe::Curator("Writer"));
    readers_and_writers(Compat::CuratorReadWrite, reader, writer).await;
}

fn taker(place: &Place) -> Taker {
    let millis = SESSION.as_millis();
    let (servers, root) = (place.addresses(), place.root());
    let url = format!("zk://{servers}{root}?compat=kazoo&session-timeout={millis}ms");
    Taker::example("zk-taker", url)
}

#[tokio::test]
async fn no_increment_of_either_is_lost() {
    let place = Place::new().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "0").expect("it is written");
    let mut kazoos = Vec::new();
    for _ in 0..2 {
        kazoos.push(theirs(&place, LOCK, "k").await);
    }
    let taker = taker(&place);
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
    let place = Place::of(&server).await;
    let locks = ours(&place, Compat::Kazoo).await;
    let mut kazoo = theirs(&place, LOCK, "k").await;
    let guard = take(&locks, "a").await;
    assert!(!kazoo.tries().await, "two holders");
    release(guard).await;
    // The server sweeps others away meanwhile.
    let curator = ours(&place, Compat::Curator).await;
    for name in ["b", "c"] {
        release(take(&curator, name).await).await;
        let gone = async || !place.tree().exists(name).await;
        until("an empty directory is deleted", gone).await;
    }
    assert_eq!(kazoo.order("try").await, "yes");
    kazoo.release().await;
}
