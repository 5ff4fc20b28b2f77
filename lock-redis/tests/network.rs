//! Network faults of requests and replies never lead to two holders, and leave nothing behind.

use lock_testkit::history::{Checker, Recorder};
use lock_testkit::proxy::{Command, Direction, Fate};
use polylock_core::memory::Request;
use polylock_core::{DistributedLock, ErrorKind, LostReason, Mode};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{
    ALIVE, LONG_TTL, Place, SOON, TTL, acquire, assert_error, assert_took, attempt, granted,
    is_kind, key, loss, ms, noted, pass, release, renewed, request, take, take_long, token, until,
    waiting, within,
};

/// Bytes of a command on its way.
fn length(command: &Command) -> usize {
    let word = |len: usize| format!("${len}\r\n").len() + len + 2;
    let words: usize = command.args.iter().map(|arg| word(arg.len())).sum();
    format!("*{}\r\n", command.args.len()).len() + words
}

/// Bytes of the longest reply to one of our requests: a number.
const REPLY: usize = ":1234567890123456\r\n".len();

/// The last request of a kind.
async fn sample(place: &Place, kind: Request) -> Command {
    let watch = place.proxy().watch(is_kind(kind));
    let locks = place.client().await;
    let guard = take_long(&locks, "sample").await;
    renewed(&guard).await;
    guard.release().await.expect("it is released");
    watch.seen().pop().expect("it was sent")
}

fn cuts(request: &Command, step: usize) -> Vec<Fate> {
    let sent = (0..=length(request)).step_by(step).map(Fate::CutRequest);
    sent.chain((0..=REPLY).map(Fate::CutReply)).collect()
}

#[tokio::test]
async fn an_acquisition_cut_at_any_byte_leaves_nothing() {
    let place = Place::new();
    // A timeout before the request is sent would leave no unknown outcome.
    let locks = place.patient_client().await;
    let once = attempt("a").with_ttl(LONG_TTL);
    let mut last = 0;
    // The commands that take a free lock: the lock itself, its token, and who holds it.
    for (name, step) in [("SET", 1), ("XADD", 5), ("GETRANGE", 5)] {
        let is_part = move |command: &Command| command.is(name);
        let watch = place.proxy().watch(is_part);
        pass(&locks, "a").await;
        for fate in cuts(&watch.seen().pop().expect("it was sent"), step) {
            let planned = place.proxy().plan(is_part, fate);
            match locks.acquire(&once).await {
                Ok(guard) => {
                    assert!(token(&guard) > last && guard.is_held(), "{name} {fate:?}");
                    last = token(&guard);
                }
                Err(error) => {
                    let kind = error.kind();
                    assert_eq!(kind, ErrorKind::Unavailable, "{name} {fate:?}: {error}");
                    assert!(error.is_outcome_unknown(), "{name} {fate:?}: {error:?}");
                }
            }
            assert_eq!(planned.struck(), 1, "{name} {fate:?}");
            place.assert_nothing_left(&[&locks], "a").await;
        }
    }
    place.assert_free("a").await;
}

#[tokio::test]
async fn a_waiter_cut_at_any_byte_is_served_once() {
    let place = Place::new();
    let (holder, locks) = (place.elsewhere().await, place.client().await);
    for fate in cuts(&sample(&place, Request::Acquire).await, 9) {
        let guard = take_long(&holder, "a").await;
        place.proxy().plan(is_kind(Request::Acquire), fate);
        let waits = within(request("a").with_ttl(LONG_TTL), SOON * 2);
        let next = place.waiter(&locks, waits).await;
        guard.release().await.expect("it is released");
        let next = granted(next).await;
        assert_eq!(place.look(&key("a")).waiters, 0, "{fate:?}");
        release(next).await;
        place.assert_nothing_left(&[&locks], "a").await;
    }
}

#[tokio::test]
async fn an_older_refusal_does_not_tell_the_outcome_of_the_last_request() {
    let place = Place::new();
    let locks = place.patient_client().await;
    let loading = Fate::Replaced("-LOADING Redis is loading the dataset in memory\r\n");
    let fates = [loading, Fate::LateReply(ms(2_000))];
    let planned = fates.map(|fate| place.proxy().plan(is_kind(Request::Acquire), fate));
    let waits = within(request("a").with_mode(Mode::Shared), ms(1_500));
    let error = assert_error(&locks, &waits, ErrorKind::Unavailable).await;
    assert_eq!(planned.map(|it| it.struck()), [1, 1], "{error}");
    assert!(error.message().contains("is loading"), "{error}");
    assert!(error.is_outcome_unknown(), "{error:?}");
    place.assert_free("a").await;
}

#[tokio::test]
async fn a_renewal_cut_at_any_byte_costs_no_lock() {
    let place = Place::new();
    let locks = place.client().await;
    let guard = acquire(&locks, &request("a").with_ttl(TTL * 3)).await;
    for fate in cuts(&sample(&place, Request::Renew).await, 1) {
        place.proxy().plan(is_kind(Request::Renew), fate);
        if let Err(error) = guard.renew().await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{fate:?}: {error}");
        }
        // Background renewals meet a fate as well; no lock outlasts renewals that all fail.
        place.proxy().clear();
        renewed(&guard).await;
        assert!(guard.is_held(), "{fate:?}");
    }
    release(guard).await;
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn a_black_hole_grants_nothing_and_ends() {
    for direction in [Direction::Requests, Direction::Replies, Direction::Both] {
        black_hole(direction).await;
    }
}

async fn black_hole(direction: Direction) {
    let place = Place::new();
    let (locks, waiter) = (place.client().await, place.client().await);
    let other = place.elsewhere().await;
    let recorder = Recorder::new();
    let held = noted(&recorder, &locks, &request("a")).await;
    let blocked = take(&other, "b").await;
    let waits = place.waiter(&waiter, within(request("b"), SOON * 3)).await;
    place.proxy().hold(direction);
    let began = Instant::now();
    let _error = assert_error(&locks, &attempt("c"), ErrorKind::Unavailable).await;
    assert_took("a request without a reply", began, ..ms(1_800));
    let lost = tokio::time::timeout(TTL + SOON, held.lost()).await;
    assert_eq!(lost, Ok(LostReason::Unreachable));
    assert_took("the loss", began, ..TTL + ms(500));
    // Other clients are served meanwhile, also in place of the waiter that is cut off.
    let next = noted(&recorder, &other, &within(request("a"), SOON)).await;
    next.release().await.expect("it is released");
    blocked.release().await.expect("it is released");
    let began = Instant::now();
    pass(&other, "b").await;
    assert_took("passing over the waiter", began, ..ALIVE + ms(2_000));
    place.proxy().clear();
    release(granted(waits).await).await;
    drop(held);
    // Delayed requests arrive after all clients have given up, and cost one lease at most.
    for name in ["a", "b", "c"] {
        until("nothing is left", || place.remains(name).is_empty()).await;
        place
            .assert_nothing_left(&[&locks, &waiter, &other], name)
            .await;
    }
    Checker::new().check(&recorder.events()).assert_clean();
}

#[tokio::test]
async fn bytes_that_drip_make_no_false_grant() {
    let place = Place::new();
    let locks = place.client().await;
    pass(&locks, "a").await;
    // Too slow for the timeout.
    place.proxy().set_drip(Direction::Both, 1, ms(5));
    let _error = assert_error(&locks, &attempt("a"), ErrorKind::Unavailable).await;
    place.proxy().clear();
    until("it is undone", || place.remains("a").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_clients_that_reconnect_at_once_are_served() {
    let place = Place::new();
    let mut clients = Vec::new();
    for _ in 0..200 {
        clients.push(place.patient_client().await);
    }
    let before = place.proxy().connections();
    for _ in 0..2 {
        place.proxy().refuse();
        place.proxy().cut();
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for (n, client) in clients.iter().cloned().enumerate() {
            let one = request(&format!("key/{}", n / 4)).with_ttl(TTL * 10);
            let one = within(one, SOON * 4);
            tasks.spawn(async move {
                let guard = client.acquire(&one).await;
                let guard = guard.unwrap_or_else(|error| panic!("{n}: {error}"));
                guard.release().await.expect("it is released");
            });
        }
        tokio::time::sleep(ms(150)).await;
        place.proxy().accept();
        tasks.join_all().await;
        assert_took("serving all clients", began, ..SOON * 4);
    }
    let made = place.proxy().connections() - before;
    assert!(made <= 200 * 2 * 4, "{made} connections");
    for n in 0..50 {
        assert_eq!(place.remains(&format!("key/{n}")), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_holder_whose_connection_is_cut_again_and_again_keeps_its_lock() {
    let place = Place::new();
    let locks = place.client().await;
    let guard = acquire(&locks, &request("a").with_ttl(TTL * 3)).await;
    let until = Instant::now() + TTL * 4;
    while Instant::now() < until {
        place.proxy().cut();
        tokio::time::sleep(ms(120)).await;
    }
    assert!(guard.is_held(), "lost as {:?}", guard.lost().reason());
    place.command(&["DEL", "a"]);
    assert_eq!(loss(&guard).await, LostReason::Stolen);
}

#[tokio::test]
async fn many_locks_that_are_lost_at_once_cost_no_other_lock() {
    let place = Place::new();
    let locks = place.patient_client().await;
    let lease = |name: &str| request(name).with_ttl(TTL * 3);
    let kept = acquire(&locks, &lease("kept")).await;
    let mut lost = Vec::new();
    for n in 0..300 {
        lost.push(acquire(&locks, &lease(&format!("key/{n}"))).await);
    }
    // A server further away.
    place.proxy().set_latency(Direction::Both, ms(2));
    for n in 0..300 {
        place.command(&["DEL", &format!("key/{n}")]);
    }
    for guard in &lost {
        assert_eq!(loss(guard).await, LostReason::Stolen);
    }
    tokio::time::sleep(TTL * 3).await;
    assert!(kept.is_held(), "lost as {:?}", kept.lost().reason());
    kept.release().await.expect("it is released");
}

#[tokio::test]
async fn a_waiter_whose_subscription_failed_once_is_notified_all_the_same() {
    let (place, locks, other) = Place::with_clients().await;
    let guard = take(&other, "a").await;
    let failed = place
        .proxy()
        .plan(|command| command.is("SUBSCRIBE"), Fate::CutReply(0));
    let next = waiting(&locks, within(request("a").with_ttl(SOON), SOON * 2));
    until("the subscription fails", || failed.struck() == 1).await;
    place.queued("a", 1).await;
    tokio::time::sleep(ms(500)).await;
    let asked = place.proxy().watch(is_kind(Request::Acquire));
    tokio::time::sleep(ms(1_000)).await;
    let asked = asked.seen().len();
    assert!(
        asked <= 3,
        "it asks again and again: {asked} times in a second"
    );
    guard.release().await.expect("it is released");
    release(granted(next).await).await;
}
