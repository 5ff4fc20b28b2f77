//! Network faults of requests and replies never lead to two holders, and leave nothing behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lock_testkit::proxy::{Command, Direction, Fate, Then};
use polylock_core::admin::Record;
use polylock_core::layers::LocalQueue;
use polylock_core::{DistributedLock, ErrorKind, FencingToken, Mode, Wait};
use polylock_zk::ZooKeeper;
use tokio::time::Instant;

use crate::support::{
    Place, SOON, admin, assert_error, attempt, granted, handed_over, is_check, is_end, is_entry,
    is_exchange, key, ms, permits, release_clean, request, take, token, until, waiting, within,
};

/// The network fails before the request arrives and after, with a closed connection or silently.
///
/// Each fault gets a session of its own: a connection that breaks before its first heartbeat may prove
/// nothing, and what is judged is one fault, not a row of them.
const FATES: [Fate; 4] = [
    Fate::LostRequest(Then::Cut),
    Fate::LostReply(Then::Cut),
    Fate::LostRequest(Then::Silent),
    Fate::LostReply(Then::Silent),
];

fn is_list(command: &Command) -> bool {
    command.is("GETCHILDREN") && !command.has("watch")
}

fn is_watch(command: &Command) -> bool {
    command.is("GETCHILDREN") && command.has("watch")
}

/// Runs each fate with a new client and session, and checks that nothing is left of its lock `a`.
async fn each(meet: impl AsyncFn(&Place, &Arc<ZooKeeper>, Fate)) {
    let place = Place::new().await;
    for fate in FATES {
        let locks = place.patient().await;
        meet(&place, &locks, fate).await;
        place.assert_nothing_left(&[&locks], "a").await;
    }
    place.assert_free("a").await;
}

async fn assert_one_node(place: &Place) {
    assert_eq!(place.tree().nodes("a").await.len(), 1);
}

#[tokio::test]
async fn a_creation_or_a_list_that_is_lost_makes_one_node() {
    acquisition(is_entry, false).await;
    acquisition(is_list, false).await;
}

#[tokio::test]
async fn a_write_and_a_look_after_a_lost_creation_are_repeated() {
    acquisition(is_check, true).await;
    let is_look = |command: &Command| command.is("EXISTS") && command.arg(1).contains("-lock-");
    acquisition(is_look, true).await;
}

async fn acquisition(kind: fn(&Command) -> bool, is_repeated: bool) {
    let last = AtomicU64::new(0);
    each(async |place, locks, fate| {
        if last.load(Ordering::Relaxed) == 0 {
            release_clean(take(locks, "a").await).await;
        }
        if is_repeated {
            place.proxy().plan(is_entry, Fate::LostReply(Then::Cut));
        }
        let planned = place.proxy().plan(kind, fate);
        let guard = take(locks, "a").await;
        assert_eq!(planned.struck(), 1, "{fate:?}");
        assert!(
            guard.is_held() && token(&guard) > last.swap(token(&guard), Ordering::Relaxed),
            "{fate:?}"
        );
        assert_one_node(place).await;
        place.assert_taken("a").await;
        release_clean(guard).await;
    })
    .await;
}

#[tokio::test]
async fn a_directory_whose_creation_is_lost_is_there_all_the_same() {
    each(async |place, locks, fate| {
        let name = format!("{fate:?}").replace(|c: char| !c.is_alphanumeric(), "");
        let is_directory = |command: &Command| command.is("CREATE") && command.arg(2) == "4";
        let planned = place.proxy().plan(is_directory, fate);
        let guard = take(locks, &name).await;
        assert_eq!(planned.struck(), 1, "{fate:?}");
        assert_eq!(place.tree().nodes(&name).await.len(), 1);
        release_clean(guard).await;
        place.assert_nothing_left(&[locks], &name).await;
    })
    .await;
}

#[tokio::test]
async fn a_record_whose_write_is_lost_is_stored_by_its_end() {
    each(async |place, locks, fate| {
        let name = format!("{fate:?}").replace(|c: char| !c.is_alphanumeric(), "");
        for (token, write) in [(1, "CREATE"), (2, "SETDATA")] {
            let is_write =
                move |command: &Command| command.is(write) && command.arg(1).contains("/=");
            let planned = place.proxy().plan(is_write, fate);
            let record = Record::new(FencingToken::new(token), write);
            let written = admin(locks).write_record(&key(&name), &record, SOON).await;
            assert!(written.expect("it is stored"), "{fate:?}");
            assert_eq!(planned.struck(), 1, "{fate:?}");
            let other = place.client().await;
            let found = admin(&other).record(&key(&name)).await;
            assert_eq!(found.expect("it answers"), Some(record), "{fate:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_waiter_whose_watch_is_lost_is_served_once() {
    each(async |place, locks, fate| {
        let other = place.client().await;
        let holder = take(&other, "a").await;
        let planned = place.proxy().plan(is_watch, fate);
        let next = waiting(locks, request("a"));
        planned.met(SOON).await;
        place.contenders("a", 2).await;
        tokio::time::sleep(ms(100)).await;
        assert!(!next.is_finished(), "{fate:?}");
        release_clean(holder).await;
        let next = granted(next).await;
        assert_one_node(place).await;
        release_clean(next).await;
    })
    .await;
}

/// Its place lasts as long as its session.
#[tokio::test]
async fn a_waiter_outlasts_a_request_that_gets_no_reply_within_the_timeout() {
    let (timeout, silence) = (ms(1_000), ms(2_500));
    let place = Place::new().await;
    let locks = place.with_timeout(timeout).await;
    let other = place.client().await;
    let silent = Fate::LostReply(Then::CutAfter(silence));
    let holder = take(&other, "a").await;
    let planned = place.proxy().plan(is_watch, silent);
    let next = waiting(&locks, request("a"));
    planned.met(SOON).await;
    let watch = place.proxy().watch(is_watch);
    tokio::time::sleep(timeout + ms(500)).await;
    assert!(!next.is_finished(), "it fails with its watch");
    until("it watches again", async || watch.count() > 0).await;
    // The end of the watch leads to a list.
    let planned = place.proxy().plan(is_list, silent);
    release_clean(holder).await;
    planned.met(SOON).await;
    release_clean(granted(next).await).await;
    // A wait that ends in silence is no contention.
    let wait = timeout + ms(500);
    let holder = take(&other, "a").await;
    let planned = place.proxy().plan(is_watch, silent);
    let began = Instant::now();
    assert_error(&locks, &within("a", wait), ErrorKind::Unavailable).await;
    assert!(began.elapsed() >= wait, "after {:?}", began.elapsed());
    assert_eq!(planned.struck(), 1);
    release_clean(holder).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

/// A reply that comes after the timeout counts like one in time.
#[tokio::test]
async fn a_wait_behind_a_holder_whose_watch_was_slow_ends_in_contention() {
    let place = Place::new().await;
    let locks = place.with_timeout(ms(1_000)).await;
    let other = place.client().await;
    let holder = take(&other, "a").await;
    let late = Fate::LateReply(ms(1_500));
    let planned = place.proxy().plan(is_watch, late);
    assert_error(&locks, &within("a", ms(3_000)), ErrorKind::Contended).await;
    assert_eq!(planned.struck(), 1);
    release_clean(holder).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

/// A watch does not fire in an outage. The queue of the process has one attempt for all of its waiters, which
/// outlasts their waits.
async fn waits_in_an_outage(fail: impl FnOnce(&Place)) {
    let (place, locks, other) = Place::with_clients().await;
    let inner: Arc<dyn DistributedLock> = Arc::<ZooKeeper>::clone(&locks);
    let queue = Arc::new(LocalQueue::new(inner));
    let holders = [take(&other, "a").await, take(&other, "b").await];
    let watches = place.proxy().watch(is_watch);
    let waiters = [
        waiting(&locks, within("a", SOON)),
        waiting(&queue, within("b", SOON)),
    ];
    until("both watch", async || watches.count() == 2).await;
    fail(&place);
    for waiter in waiters {
        let refused = waiter.await.expect("no panic");
        let error = refused.expect_err("two holders");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    place.proxy().clear();
    place.proxy().accept();
    for (holder, name) in holders.into_iter().zip(["a", "b"]) {
        release_clean(holder).await;
        place.assert_nothing_left(&[&locks, &other], name).await;
    }
}

#[tokio::test]
async fn a_wait_that_ends_in_an_outage_is_no_contention() {
    waits_in_an_outage(Place::disconnect).await;
}

#[tokio::test]
async fn a_wait_that_ends_in_silence_is_no_contention() {
    waits_in_an_outage(|place| place.proxy().hold(Direction::Both)).await;
}

/// The list that follows is not sent.
#[tokio::test]
async fn a_wait_whose_watch_is_lost_in_an_outage_is_no_contention() {
    let (place, locks, other) = Place::with_clients().await;
    let holder = take(&other, "a").await;
    let lost = Fate::LostRequest(Then::Cut);
    let planned = place.proxy().plan(is_watch, lost);
    place.proxy().refuse();
    assert_error(&locks, &within("a", SOON), ErrorKind::Unavailable).await;
    assert_eq!(planned.struck(), 1);
    place.proxy().accept();
    release_clean(holder).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn a_waiter_that_is_connected_again_keeps_its_place_and_sees_the_holder() {
    let place = Place::new().await;
    let (locks, other) = (place.with_session(SOON * 6).await, place.client().await);
    let queue = Arc::new(LocalQueue::new(locks));
    let holder = take(&other, "a").await;
    let watches = place.proxy().watch(is_watch);
    let waiter = waiting(&queue, within("a", SOON * 16));
    until("it watches", async || watches.count() == 1).await;
    let nodes = place.tree().nodes("a").await;
    // A request that does not wait is refused by what the waiter has seen.
    let refusal = async || {
        let refused = queue.acquire(&attempt("a")).await;
        refused.expect_err("two holders").kind()
    };
    place.disconnect();
    let is_noticed = async || refusal().await == ErrorKind::Unavailable;
    until("the outage is noticed", is_noticed).await;
    place.proxy().accept();
    let is_seen = async || refusal().await == ErrorKind::Contended;
    until("the holder is seen again", is_seen).await;
    assert_eq!(place.tree().nodes("a").await, nodes);
    release_clean(holder).await;
    release_clean(granted(waiter).await).await;
}

/// The third waits for the second to get its permit, and the second for any change.
async fn waiters_for_permits(kind: fn(&Command) -> bool) {
    let one = request("a").with_mode(permits(1));
    each(async |place, locks, fate| {
        let other = place.client().await;
        let holder = other.acquire(&one).await.expect("it is granted");
        let planned = place.proxy().plan(kind, fate);
        let second = place.waiter(locks, one.clone()).await;
        let third = waiting(locks, one.clone());
        planned.met(SOON).await;
        place.contenders("a", 3).await;
        tokio::time::sleep(ms(100)).await;
        assert!(!second.is_finished() && !third.is_finished(), "{fate:?}");
        release_clean(holder).await;
        let second = granted(second).await;
        assert!(!third.is_finished());
        let before = token(&second);
        release_clean(second).await;
        let third = granted(third).await;
        assert!(token(&third) > before);
        release_clean(third).await;
    })
    .await;
}

#[tokio::test]
async fn waiters_for_permits_are_served_although_a_watch_is_lost() {
    waiters_for_permits(is_watch).await;
    waiters_for_permits(|command| command.is("GETDATA") && command.has("watch")).await;
}

#[tokio::test]
async fn a_waiter_finds_a_lock_that_came_free_before_its_watch_was_set() {
    let (place, locks, other) = Place::with_clients().await;
    let holder = take(&other, "a").await;
    let late = Fate::LateRequest(ms(500));
    let planned = place.proxy().plan(is_watch, late);
    let next = waiting(&locks, request("a"));
    planned.met(SOON).await;
    release_clean(holder).await;
    release_clean(granted(next).await).await;
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn a_waiter_hears_of_a_release_in_an_outage() {
    let (place, locks, other) = Place::with_clients().await;
    for _ in 0..3 {
        let holder = take(&other, "a").await;
        let next = place.waiter(&locks, request("a")).await;
        place.disconnect();
        release_clean(holder).await;
        tokio::time::sleep(ms(300)).await;
        assert!(!next.is_finished());
        place.proxy().accept();
        let began = Instant::now();
        release_clean(granted(next).await).await;
        assert!(
            began.elapsed() < SOON,
            "granted and released after {:?}",
            began.elapsed()
        );
        place.assert_nothing_left(&[&locks], "a").await;
    }
}

#[tokio::test]
async fn a_downgrade_that_is_lost_happens_once() {
    each(async |place, locks, fate| {
        let mut guard = take(locks, "a").await;
        let before = token(&guard);
        let planned = place.proxy().plan(is_exchange, fate);
        guard.downgrade().await.expect("it becomes shared");
        assert_eq!(planned.struck(), 1, "{fate:?}");
        let nodes = place.tree().nodes("a").await;
        assert!(
            nodes.len() == 1 && nodes[0].contains("__READ__"),
            "{nodes:?}"
        );
        assert!(guard.is_held() && token(&guard) == before, "{fate:?}");
        place.assert_taken("a").await;
        let other = place.client().await;
        let reader = other.acquire(&request("a").with_mode(Mode::Shared)).await;
        release_clean(reader.expect("readers share it")).await;
        release_clean(guard).await;
    })
    .await;
}

fn is_write(command: &Command) -> bool {
    command.is("SETDATA")
}

#[tokio::test]
async fn a_token_whose_write_is_lost_is_drawn_again() {
    each(async |place, locks, fate| {
        let other = place.client().await;
        let writer = take(&other, "a").await;
        let before = token(&writer);
        let reader = place
            .waiter(locks, request("a").with_mode(Mode::Shared))
            .await;
        let planned = place.proxy().plan(is_write, fate);
        release_clean(writer).await;
        let reader = granted(reader).await;
        assert_eq!(planned.struck(), 1, "{fate:?}");
        assert!(reader.is_held() && token(&reader) > before, "{fate:?}");
        assert_one_node(place).await;
        release_clean(reader).await;
    })
    .await;
}

/// Hand-overs draw from the tokens of one transaction; this many take another one.
const HANDOVERS: usize = 300;

#[tokio::test]
async fn a_hand_over_whose_write_is_lost_costs_no_waiter_the_lock() {
    each(async |place, zookeeper, fate| {
        let inner: Arc<dyn DistributedLock> = Arc::<ZooKeeper>::clone(zookeeper);
        let locks = LocalQueue::new(inner).with_max_handovers(1_000);
        let mut guard = locks.acquire(&request("a")).await.expect("it is free");
        let planned = place.proxy().plan(is_write, fate);
        for _ in 0..HANDOVERS {
            let before = token(&guard);
            guard = handed_over(&locks, guard).await;
            assert!(guard.is_held() && token(&guard) > before);
        }
        assert_eq!(planned.struck(), 1, "{fate:?}");
        assert_one_node(place).await;
        release_clean(guard).await;
    })
    .await;
}

#[tokio::test]
async fn an_entry_cut_at_any_byte_makes_one_node() {
    let place = Place::new().await;
    let locks = place.patient().await;
    drop(take(&locks, "a").await);
    place.assert_nothing_left(&[&locks], "a").await;
    // A request of some 240 bytes and a reply of some 170, both with the path of the node.
    let requests = (0..280).step_by(13).map(Fate::CutRequest);
    let replies = (0..200).step_by(9).map(Fate::CutReply);
    let mut last = 0;
    for fate in requests.chain(replies) {
        let planned = place.proxy().plan(is_entry, fate);
        let guard = take(&locks, "a").await;
        assert_eq!(planned.struck(), 1, "{fate:?}");
        assert!(token(&guard) > last, "{fate:?}");
        last = token(&guard);
        assert_eq!(place.tree().nodes("a").await.len(), 1, "{fate:?}");
        release_clean(guard).await;
    }
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn a_permit_that_was_granted_before_it_is_watched_is_noticed() {
    let (place, locks, other) = Place::with_clients().await;
    let one = request("a").with_mode(permits(2));
    let first = other.acquire(&one).await.expect("it is granted");
    let second = other.acquire(&one).await.expect("it is granted");
    let third = place.waiter(&other, one.clone()).await;
    tokio::time::sleep(ms(200)).await;
    let is_watch = |command: &Command| command.is("GETDATA") && command.has("watch");
    let late = Fate::LateRequest(ms(500));
    let planned = place.proxy().plan(is_watch, late);
    let fourth = waiting(&locks, one.clone());
    planned.met(SOON).await;
    release_clean(first).await;
    let third = granted(third).await;
    tokio::time::sleep(ms(1_000)).await;
    release_clean(second).await;
    // The third has its permit, and sends no more requests.
    let began = Instant::now();
    let fourth = granted(fourth).await;
    assert!(
        began.elapsed() < ms(1_000),
        "granted after {:?}",
        began.elapsed()
    );
    release_clean(third).await;
    release_clean(fourth).await;
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_a_server_that_has_gone_silent() {
    let (place, locks, other) = Place::with_clients().await;
    let holder = take(&other, "a").await;
    let planned = place.proxy().plan(is_end, Fate::LostRequest(Then::Silent));
    let began = Instant::now();
    assert_error(&locks, &attempt("a"), ErrorKind::Contended).await;
    assert!(
        began.elapsed() < ms(1_800),
        "refused after {:?}",
        began.elapsed()
    );
    assert_eq!(planned.struck(), 1);
    // The node goes in the background.
    place.contenders("a", 1).await;
    release_clean(holder).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_that_reconnect_at_once_are_served() {
    let place = Place::new().await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(place.patient().await);
    }
    let before = place.proxy().connections();
    for _ in 0..3 {
        place.disconnect();
        let began = Instant::now();
        let mut tasks = Vec::new();
        for (n, locks) in clients.iter().enumerate() {
            let (locks, one) = (Arc::clone(locks), request(&format!("key-{}", n / 4)));
            tasks.push(tokio::spawn(async move {
                let guard = locks.acquire(&one.with_wait(Wait::AtMost(SOON * 4))).await;
                let guard = guard.unwrap_or_else(|error| panic!("{n}: {error}"));
                release_clean(guard).await;
            }));
        }
        tokio::time::sleep(ms(200)).await;
        place.proxy().accept();
        for task in tasks {
            task.await.expect("no panic");
        }
        assert!(
            began.elapsed() < SOON * 2,
            "ended after {:?}",
            began.elapsed()
        );
    }
    let made = place.proxy().connections() - before;
    assert!(made <= 50 * 3 * 3, "{made} connections");
    for n in 0..13 {
        place.contenders(&format!("key-{n}"), 0).await;
    }
}
