//! Acquisitions that end early leave no directory behind. ZooKeeper removes only those that had a contender.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock_testkit::proxy::{Command, Fate, Planned, Then};
use lock_testkit::servers::ZooKeeperServer;
use polylock_core::{DistributedLock, ErrorKind, Mode};
use polylock_zk::{Compat, ZooKeeper};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Acls, CreateMode, Permission};

use crate::support::{
    Place, SOON, assert_error, attempt, config, granted, lasting, ms, open, permits, release_clean,
    request, take, until, waiting, within,
};

/// The requests of the first acquisition of a key.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The node, which needs a directory.
    Entry,
    Directory,
    SecondEntry,
}

const STEPS: [Step; 3] = [Step::Entry, Step::Directory, Step::SecondEntry];

fn plan(place: &Place, step: Step, fate: Fate) -> Planned {
    let proxy = place.proxy();
    match step {
        Step::Entry => proxy.plan(is_entry, fate),
        Step::Directory => proxy.plan(is_directory, fate),
        Step::SecondEntry => {
            proxy.plan(is_entry, Fate::LateReply(ms(0)));
            proxy.plan(is_entry, fate)
        }
    }
}

fn is_entry(command: &Command) -> bool {
    crate::support::is_entry(command)
}

fn is_directory(command: &Command) -> bool {
    command.is("CREATE") && ["0", "4"].contains(&&*command.arg(2))
}

fn is_deletion_of_directory(command: &Command) -> bool {
    command.is("DELETE") && !command.arg(1).contains("-lock-")
}

/// A server that removes a directory soon after its last contender has left.
async fn place() -> (ZooKeeperServer, Place) {
    let server = ZooKeeperServer::start(crate::support::quick_containers());
    let place = Place::of(&server).await;
    (server, place)
}

/// Once all requests are done, the lock has neither a node nor a directory.
async fn assert_no_directory(place: &Place, locks: &Arc<ZooKeeper>, name: &str) {
    place.assert_nothing_left(&[locks], name).await;
    let gone = async || !place.tree().exists(name).await;
    until(&format!("the directory of {name} is removed"), gone).await;
}

/// A key that no other case has.
fn key_of(case: &str) -> String {
    case.replace(|c: char| !c.is_alphanumeric(), "")
}

#[tokio::test]
async fn an_acquisition_dropped_wherever_its_request_is_leaves_no_directory() {
    let (_server, place) = place().await;
    let locks = place.with_session(SOON * 2).await;
    for step in STEPS {
        for fate in [
            Fate::LateReply(ms(60)),
            Fate::LateRequest(ms(60)),
            Fate::LostReply(Then::Cut),
            Fate::LostRequest(Then::Cut),
        ] {
            // Before the reply, while it connects again, and around the next request.
            for later in [0, 10, 30, 63, 70] {
                let name = key_of(&format!("{step:?} {fate:?} {later}"));
                let planned = plan(&place, step, fate);
                let acquisition = waiting(&locks, request(&name));
                planned.met(SOON).await;
                sleep(ms(later)).await;
                acquisition.abort();
                drop(acquisition.await);
                assert_no_directory(&place, &locks, &name).await;
                place.proxy().clear();
            }
        }
    }
}

#[tokio::test]
async fn an_acquisition_that_times_out_leaves_no_directory() {
    let (_server, place) = place().await;
    let locks = place.with_session(SOON * 2).await;
    for step in STEPS {
        for fate in [
            Fate::LateReply(ms(900)),
            Fate::LostReply(Then::CutAfter(ms(900))),
            Fate::LostRequest(Then::CutAfter(ms(900))),
        ] {
            let name = key_of(&format!("{step:?} {fate:?}"));
            let planned = plan(&place, step, fate);
            assert_error(&locks, &within(&name, ms(400)), ErrorKind::Unavailable).await;
            assert_eq!(planned.struck(), 1, "{name}");
            assert_no_directory(&place, &locks, &name).await;
            place.proxy().clear();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquisitions_dropped_at_any_time_leave_no_directory() {
    let (_server, place) = place().await;
    let locks = place.client().await;
    let mut acquisitions = JoinSet::new();
    for n in 0..300_u64 {
        let locks = Arc::clone(&locks);
        acquisitions.spawn(async move {
            let one = request(&format!("n{n}"));
            drop(
                timeout(
                    ms(1) * u32::try_from(n % 20).unwrap_or(0) / 2,
                    locks.acquire(&one),
                )
                .await,
            );
        });
        sleep(ms(1)).await;
    }
    acquisitions.join_all().await;
    for n in 0..300 {
        assert_no_directory(&place, &locks, &format!("n{n}")).await;
    }
}

/// Others that queue at the same time find the directory gone before or behind their own requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_that_race_with_the_deletion_of_a_directory_are_granted() {
    let (_server, place) = place().await;
    let clients = [place.client().await, place.client().await];
    for round in 0..40 {
        let name = format!("r{round}");
        let holding = Arc::<AtomicUsize>::default();
        let mut tasks = JoinSet::new();
        for n in 0..10_u32 {
            let (locks, holding) = (Arc::clone(&clients[(n % 2) as usize]), Arc::clone(&holding));
            let one = request(&name);
            tasks.spawn(async move {
                if n >= 4 {
                    let limit = ms(1) * (n - 4) / 2;
                    return drop(timeout(limit, locks.acquire(&one)).await);
                }
                sleep(ms(1) * n).await;
                let guard = locks.acquire(&one).await.expect("it is granted");
                assert_eq!(holding.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                sleep(ms(1)).await;
                holding.fetch_sub(1, Ordering::SeqCst);
                release_clean(guard).await;
            });
        }
        tasks.join_all().await;
        for locks in &clients {
            assert_no_directory(&place, locks, &name).await;
        }
    }
}

#[tokio::test]
async fn a_contender_whose_directory_is_deleted_before_it_enters_makes_it_again() {
    let place = Place::new().await;
    let locks = place.with_session(SOON * 2).await;
    for mode in [Mode::Exclusive, Mode::Shared, permits(2)] {
        let name = key_of(&format!("{mode:?}"));
        let made = place.proxy().watch(is_directory);
        let entry = plan(&place, Step::SecondEntry, Fate::LateRequest(ms(500)));
        let waiter = waiting(&locks, request(&name).with_mode(mode));
        entry.met(SOON).await;
        let path = place.tree().directory(&name);
        let deleted = place.tree().client().delete(&path, None).await;
        deleted.expect("it is there without a node");
        release_clean(granted(waiter).await).await;
        assert_eq!(made.count(), 2, "{mode:?}");
    }
}

/// An acquisition that has made the directory, and is dropped before its node is there.
async fn drop_with_directory(place: &Place, locks: &Arc<ZooKeeper>, name: &str) {
    let late = plan(place, Step::Directory, Fate::LateReply(ms(100)));
    let acquisition = waiting(locks, request(name));
    late.met(SOON).await;
    acquisition.abort();
    drop(acquisition.await);
}

#[tokio::test]
async fn a_directory_that_has_a_contender_by_then_stays() {
    let place = Place::new().await;
    let locks = place.with_session(SOON * 2).await;
    let deletion = place
        .proxy()
        .plan(is_deletion_of_directory, Fate::LateRequest(ms(1_000)));
    drop_with_directory(&place, &locks, "a").await;
    deletion.met(SOON).await;
    // It has seen an empty directory, and its request is under way.
    let other = place.client().await;
    let holder = take(&other, "a").await;
    assert!(locks.shutdown(SOON).await);
    assert!(holder.is_held());
    assert_error(&locks, &attempt("a"), ErrorKind::Contended).await;
    release_clean(holder).await;
}

#[tokio::test]
async fn without_the_right_to_delete_a_directory_it_stays_and_nothing_waits() {
    let place = Place::new().await;
    let locks = place.with_session(SOON * 2).await;
    let access = Permission::READ | Permission::CREATE | Permission::ADMIN;
    place.tree().set_access(place.root(), access).await;
    let deletions = place.proxy().watch(is_deletion_of_directory);
    drop_with_directory(&place, &locks, "a").await;
    let began = Instant::now();
    place.assert_nothing_left(&[&locks], "a").await;
    assert!(
        began.elapsed() < ms(2_000),
        "nothing left after {:?}",
        began.elapsed()
    );
    assert_eq!(deletions.count(), 1);
    assert!(place.tree().exists("a").await);
    release_clean(take(&locks, "a").await).await;
}

#[tokio::test]
async fn a_directory_that_kazoo_may_use_stays_after_a_dropped_acquisition() {
    let place = Place::new().await;
    let config = lasting(config(&[place.proxy().port()], place.root()), SOON * 2);
    let locks = open(config.with_compat(Compat::Kazoo)).await;
    drop_with_directory(&place, &locks, "a").await;
    place.assert_nothing_left(&[&locks], "a").await;
    assert!(place.tree().exists("a").await);
}

/// The directory may be new, because a request for it had no reply, and another program was faster.
#[tokio::test]
async fn a_node_of_another_program_in_place_of_a_directory_stays() {
    let place = Place::new().await;
    let locks = place.with_session(SOON * 2).await;
    let silent = Fate::LostRequest(Then::CutAfter(ms(500)));
    let lost = plan(&place, Step::Directory, silent);
    let acquisition = waiting(&locks, request("a"));
    lost.met(SOON).await;
    let path = place.tree().directory("a");
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let made = place.tree().client().create(&path, b"", &ephemeral).await;
    made.expect("it is faster");
    let error = acquisition
        .await
        .expect("no panic")
        .expect_err("it is foreign");
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    assert!(locks.shutdown(SOON).await);
    assert!(place.tree().exists("a").await);
}
