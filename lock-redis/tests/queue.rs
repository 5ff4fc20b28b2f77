//! The queue on the server keeps its order, skips dead waiters, and works without notifications.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::support::rights;
use lock_testkit::history::{Checker, Recorder};
use lock_testkit::proxy::{Command, Direction, Fate, Proxy, PushFate, ReplyOrder, Then, Watch};
use lock_testkit::servers::{RedisCluster, RedisOptions, RedisSentinels, Reply};
use lock_testkit::taker::Taker;
use polylock_core::engine::Engine;
use polylock_core::layers::LocalQueue;
use polylock_core::memory::Reachable;
use polylock_core::{DistributedLock, ErrorKind, LostReason, Wait};
use polylock_redis::Redis;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{
    ALIVE, LONG_TTL, Place, SOON, TTL, acquire, assert_error, assert_took, break_lock, granted,
    key, lease, loss, ms, noted, of_cluster, of_sentinels, open, release, renewed, request, take,
    take_long, until, waiting, within,
};

#[tokio::test]
async fn several_dead_waiters_delay_the_next_by_no_more_than_one_of_them() {
    let place = Place::new();
    let url = format!("{}?namespace=", place.server.url());
    let taker = Taker::example("redis-taker", url);
    let locks = place.elsewhere().await;
    let guard = take(&locks, "a").await;
    let mut doomed = Vec::new();
    for n in 0..3 {
        let waiter = taker.take(&key("a")).with_ttl(5 * TTL).spawn();
        doomed.push(waiter.expect("it starts"));
        place.queued("a", n + 1).await;
    }
    let next = waiting(&locks, within(request("a"), 3 * SOON));
    place.queued("a", 4).await;
    for process in &mut doomed {
        process.kill().expect("it is killed");
    }
    let began = Instant::now();
    release(guard).await;
    let next = granted(next).await;
    // One grant to a dead waiter, and a heartbeat of the next one that finds it ended.
    assert_took("passing over dead waiters", began, ..ALIVE + ms(1_500));
    release(next).await;
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn a_message_that_is_lost_late_or_doubled_costs_no_more_than_a_heartbeat() {
    let (place, locks, other) = Place::with_clients().await;
    let recorder = Recorder::new();
    let fates = [
        (PushFate::Lost, ms(1_000)),
        (PushFate::Doubled, ms(200)),
        (PushFate::Late(ms(1_700)), ms(1_000)),
    ];
    for (fate, beat) in fates.into_iter().cycle().take(9) {
        // A heartbeat is a fifth of the ttl, and a second at most.
        let ttl = beat * 5;
        let guard = noted(&recorder, &other, &request("a")).await;
        let next = {
            let (locks, recorder) = (Arc::clone(&locks), recorder.clone());
            let one = within(request("a").with_ttl(ttl), SOON);
            tokio::spawn(async move { recorder.acquire(&locks, &one).await })
        };
        place.queued("a", 1).await;
        place.proxy().plan_push(|_| true, fate);
        let began = Instant::now();
        guard.release().await.expect("it is released");
        let next = granted(next).await;
        assert_took(&format!("{fate:?}"), began, ..beat + ms(1_000));
        renewed(&next).await;
        next.look();
        next.release().await.expect("it is released");
        place.proxy().clear();
    }
    place.assert_nothing_left(&[&locks, &other], "a").await;
    Checker::new().check(&recorder.events()).assert_clean();
}

#[tokio::test]
async fn a_grant_that_is_told_after_its_lease_makes_no_guard() {
    let (place, locks, other) = Place::with_clients().await;
    let recorder = Recorder::new();
    let guard = noted(&recorder, &other, &request("a")).await;
    let next = {
        let (locks, recorder) = (Arc::clone(&locks), recorder.clone());
        let one = within(lease("a"), SOON * 3);
        tokio::spawn(async move { recorder.acquire(&locks, &one).await })
    };
    place.queued("a", 1).await;
    tokio::time::sleep(ms(50)).await;
    // It cannot poll any more, and learns of its grant when the lease has expired.
    place.proxy().hold(Direction::Requests);
    place
        .proxy()
        .plan_push(|_| true, PushFate::Late(TTL.mul_f64(1.5)));
    guard.release().await.expect("it is released");
    assert_eq!(
        place.look(&key("a")).holders,
        1,
        "it is not granted on the server"
    );
    let third = recorder.acquire(&other, &within(request("a"), SOON)).await;
    let third = third.expect("the grant expires");
    for _ in 0..100 {
        tokio::time::sleep(ms(10)).await;
        third.look();
        assert!(!next.is_finished(), "a grant that was over made a guard");
    }
    place.proxy().clear();
    third.release().await.expect("it is released");
    let next = granted(next).await;
    next.release().await.expect("it is released");
    place.assert_nothing_left(&[&locks, &other], "a").await;
    Checker::new().check(&recorder.events()).assert_clean();
}

#[tokio::test]
async fn a_waiter_that_is_cut_off_keeps_its_place_or_gets_another() {
    let (place, locks, other) = Place::with_clients().await;
    for outage in [ms(100), ALIVE + ms(1_000)] {
        let guard = take(&other, "a").await;
        let next = place.waiter(&locks, within(request("a"), SOON * 4)).await;
        place.faults().set_reachable(Reachable::Cut);
        tokio::time::sleep(outage).await;
        place.faults().set_reachable(Reachable::Connected);
        place.queued("a", 1).await;
        guard.release().await.expect("it is released");
        release(granted(next).await).await;
        place.assert_nothing_left(&[&locks, &other], "a").await;
    }
}

/// A server that is frozen has not confirmed that the lock is still held.
#[tokio::test]
async fn a_wait_that_ends_in_silence_is_no_contention() {
    let place = Place::new();
    // A request that has no reply when the wait ends, and long after that.
    let patient = place.config().with_timeout(SOON * 4);
    let locks = open(patient.expect("it is in range")).await;
    let holder = place.elsewhere().await;
    let guard = take(&holder, "a").await;
    let next = place.waiter(&locks, within(request("a"), SOON)).await;
    // Its heartbeat is due every 200 ms.
    place.server.stop();
    let ended = next.await.expect("no panic");
    place.server.resume();
    let error = ended.expect_err("two holders");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    drop(guard);
    place.assert_nothing_left(&[&locks, &holder], "a").await;
}

#[tokio::test]
async fn a_waiter_whose_runtime_is_blocked_keeps_its_place_and_gets_its_lock() {
    let place = Place::new();
    let (holder, other) = (place.elsewhere().await, place.elsewhere().await);
    let guard = take(&holder, "a").await;
    let config = place.config();
    let blocked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            let locks = open(config).await;
            let first = waiting(&locks, within(request("a"), SOON * 4));
            tokio::time::sleep(ms(500)).await;
            std::thread::sleep(ALIVE * 2);
            let first = granted(first).await;
            assert!(first.is_held(), "it was renewed meanwhile");
            first.release().await.expect("it is released");
        });
    });
    place.queued("a", 1).await;
    let second = place.waiter(&other, within(request("a"), SOON * 4)).await;
    tokio::time::sleep(ALIVE + ms(500)).await;
    guard.release().await.expect("it is released");
    place.queued("a", 1).await;
    tokio::time::sleep(ms(500)).await;
    assert!(!second.is_finished(), "the second waiter went first");
    let second = granted(second).await;
    blocked
        .join()
        .expect("the first waiter had the lock before");
    second.release().await.expect("it is released");
    place.assert_nothing_left(&[&holder, &other], "a").await;
}

/// Three clients that have waited for a lock, as waiters that join by a plain command.
async fn regulars(place: &Place) -> [Arc<Redis>; 3] {
    let clients = [
        place.client().await,
        place.client().await,
        place.client().await,
    ];
    for client in &clients {
        let other = place.elsewhere().await;
        let guard = take_long(&other, "a").await;
        let long = || within(request("a").with_ttl(LONG_TTL), SOON);
        let next = place.waiter(client, long()).await;
        release(guard).await;
        // A release without waiters deletes the queue, and its client knows that.
        let last = place.waiter(&other, long()).await;
        release(granted(next).await).await;
        release(granted(last).await).await;
    }
    clients
}

fn joins(command: &Command) -> bool {
    command.is("XADD") && command.has("w")
}

#[tokio::test]
async fn waiters_that_join_by_a_plain_command_are_served_in_order() {
    let place = Place::new();
    let (clients, other) = (regulars(&place).await, place.elsewhere().await);
    let joined = place.proxy().watch(joins);
    let mut guard = take(&other, "a").await;
    let mut waiters = VecDeque::new();
    for (n, client) in clients.iter().cycle().take(6).enumerate() {
        waiters.push_back(waiting(client, within(request("a"), SOON * 4)));
        place.queued("a", n + 1).await;
    }
    while let Some(next) = waiters.pop_front() {
        let before = guard.fencing_token();
        release(guard).await;
        guard = granted(next).await;
        assert!(guard.fencing_token() > before);
        assert!(waiters.iter().all(|one| !one.is_finished()));
    }
    release(guard).await;
    assert!(joined.count() >= 5, "they joined by scripts");
    let all = [&clients[0], &clients[1], &clients[2], &other];
    place.assert_nothing_left(&all, "a").await;
    assert_eq!(place.number(&["EXISTS", "{a}:waiters"]), 0);
}

#[tokio::test]
async fn a_waiter_that_joins_by_a_plain_command_keeps_the_queue() {
    let place = Place::new();
    let (clients, other) = (regulars(&place).await, place.elsewhere().await);
    let guard = take_long(&other, "a").await;
    let mut rounds = 0..10;
    let second = loop {
        rounds.next().expect("it is late each time");
        let first = within(request("a"), SOON * 4);
        let first = place.waiter(&clients[0], first).await;
        let joined = place.proxy().watch(joins);
        let second = within(request("a").with_ttl(LONG_TTL), SOON * 4);
        let second = place.waiter(&clients[1], second).await;
        assert_eq!(joined.count(), 1);
        first.abort();
        place.queued("a", 1).await;
        // Long before its regular heartbeat.
        let began = Instant::now();
        place.command(&["PEXPIRE", "{a}:waiters", "800"]);
        until("the queue is kept", || {
            place.number(&["PTTL", "{a}:waiters"]) > 1_000
        })
        .await;
        // On a busy machine it may come before the PEXPIRE, or too late.
        if began.elapsed() < ms(500) {
            break second;
        }
        second.abort();
        place.queued("a", 0).await;
    };
    // A queue that is evicted is made again.
    place.command(&["DEL", "{a}:waiters", "{a}:notes"]);
    place.queued("a", 1).await;
    release(guard).await;
    release(granted(second).await).await;
    let all = [&clients[0], &clients[1], &other];
    place.assert_nothing_left(&all, "a").await;
}

/// The queue outlives its dead holder; only a waiter finds the lock free.
#[tokio::test]
async fn a_short_wait_finds_a_lock_free_whose_queue_is_left() {
    let place = Place::new();
    let (clients, other) = (regulars(&place).await, place.elsewhere().await);
    let guard = take(&other, "a").await;
    let lasting = || request("a").with_ttl(TTL * 30);
    let next = waiting(&clients[0], within(lasting(), SOON * 4));
    place.queued("a", 1).await;
    release(guard).await;
    let gone = granted(next).await;
    place.command(&["DEL", "a"]);
    assert_eq!(place.number(&["EXISTS", "{a}:waiters"]), 1, "it is left");
    let short = clients[1].acquire(&within(lasting(), ms(250))).await;
    release(short.expect("it is free")).await;
    drop(gone);
    let all = [&clients[0], &clients[1], &other];
    place.assert_nothing_left(&all, "a").await;
}

/// The first heartbeat, which would find it free, is late: the runtime is blocked until after the wait.
#[tokio::test]
async fn a_wait_that_ends_before_its_first_heartbeat_finds_a_lock_free_whose_queue_is_left() {
    let place = Place::new();
    let blocked = place
        .direct()
        .with_engine(Engine::on_current_runtime("redis"));
    let (blocked, other) = (open(blocked).await, place.elsewhere().await);
    let lasting = || request("a").with_ttl(LONG_TTL);
    let guard = take(&other, "a").await;
    let next = place.waiter(&blocked, within(lasting(), SOON * 4)).await;
    release(guard).await;
    let gone = granted(next).await;
    place.command(&["DEL", "a"]);
    let waiter = waiting(&blocked, within(lasting(), ms(500)));
    let has_joined = || place.waiters("a") == 1 || waiter.is_finished();
    until("it has joined", has_joined).await;
    std::thread::sleep(ms(700));
    release(granted(waiter).await).await;
    drop(gone);
}

#[tokio::test]
async fn a_plain_command_that_joins_may_be_lost_or_come_twice() {
    let place = Place::new();
    let twice = Fate::Duplicated {
        after: Duration::ZERO,
        answer: ReplyOrder::First,
    };
    for fate in [
        Fate::LostReply(Then::Cut),
        Fate::LostRequest(Then::Cut),
        Fate::LateReply(ms(800)),
        twice,
    ] {
        let (clients, other) = (regulars(&place).await, place.elsewhere().await);
        let guard = take(&other, "a").await;
        let first = place
            .waiter(&clients[0], within(request("a"), SOON * 4))
            .await;
        let planned = place.proxy().plan(joins, fate);
        let second = waiting(&clients[1], within(request("a"), SOON * 4));
        place.queued("a", if fate == twice { 3 } else { 2 }).await;
        assert_eq!(planned.struck(), 1, "{fate:?}");
        // By now it knows its place.
        tokio::time::sleep(ms(1_200)).await;
        release(guard).await;
        release(granted(first).await).await;
        release(granted(second).await).await;
        place
            .assert_nothing_left(&[&clients[0], &clients[1], &other], "a")
            .await;
    }
}

/// Waiters without notifications still get the lock, one after the other.
async fn serve_untold(place: &Place, config: polylock_redis::RedisConfig) {
    let config = config.with_timeout(SOON).expect("it is in range");
    let (locks, other) = (open(config).await, place.elsewhere().await);
    for _ in 0..2 {
        let guard = take_long(&other, "a").await;
        let mut waiters = JoinSet::new();
        for _ in 0..5 {
            let locks = Arc::clone(&locks);
            let one = within(request("a").with_ttl(LONG_TTL), SOON * 2);
            waiters.spawn(async move { release(acquire(&locks, &one).await).await });
        }
        place.queued("a", 5).await;
        let began = Instant::now();
        guard.release().await.expect("it is released");
        waiters.join_all().await;
        assert_took("serving five waiters", began, ..SOON);
        // The wait has an end as well.
        let guard = take_long(&other, "a").await;
        let began = Instant::now();
        assert_error(&locks, &within(request("a"), ms(300)), ErrorKind::Contended).await;
        assert_took("a wait of 300 ms", began, ms(300)..ms(1_500));
        guard.release().await.expect("it is released");
    }
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

/// A waiter is notified of its grant, and does not have to poll.
async fn assert_told(proxies: &[Proxy], config: polylock_redis::RedisConfig) {
    let (locks, other) = (open(config.clone()).await, open(config).await);
    let beats: Vec<_> = proxies
        .iter()
        .map(|proxy| proxy.watch(|command| command.is("EVALSHA") && says_where(command)))
        .collect();
    let asked = || beats.iter().map(Watch::count).sum::<usize>();
    let mut told = 0;
    for _ in 0..9 {
        let guard = take(&other, "a").await;
        let before = asked();
        let next = waiting(&locks, within(request("a").with_ttl(TTL * 30), SOON * 2));
        until("it waits", || asked() > before).await;
        tokio::time::sleep(ms(30)).await;
        let before = asked();
        guard.release().await.expect("it is released");
        let next = granted(next).await;
        told += usize::from(asked() == before);
        next.release().await.expect("it is released");
    }
    // A heartbeat may fall into the same moment.
    assert!(told >= 6, "only {told} of 9 were told");
}

fn says_where(command: &Command) -> bool {
    command.arg(command.args.len() - 1).contains("polylock:")
}

#[tokio::test]
async fn a_waiter_is_told_by_one_server_by_the_master_of_sentinels_and_in_a_cluster() {
    let place = Place::new();
    assert_told(std::slice::from_ref(place.proxy()), place.config()).await;
    let (sentinels, proxy) = RedisSentinels::start_light_behind_proxy();
    assert_told(&[proxy], of_sentinels(&sentinels)).await;
    let (cluster, proxies) = RedisCluster::start_behind_proxies(3, 0);
    assert_told(&proxies, of_cluster(&cluster)).await;
}

#[tokio::test]
async fn clients_that_are_not_notified_are_served_and_warned_once() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let writer = Arc::new(log.reopen().expect("it is there"));
    // Connections belong to several threads.
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
    subscriber.with_writer(writer).init();
    let mut before = 0;
    let mut warnings = || {
        let log = std::fs::read_to_string(log.path()).expect("a text");
        let count = log.matches("are not notified").count();
        count - std::mem::replace(&mut before, count)
    };
    let place = Place::new();
    serve_untold(&place, place.config().with_resp2()).await;
    assert_eq!(warnings(), 1, "warnings of a client without RESP3");
    serve_untold(&place, place.config().without_push()).await;
    assert_eq!(warnings(), 0, "warnings of one that wants no messages");
    for denied in ["-subscribe", "resetchannels", "-publish"] {
        let rules = format!("{} {denied}", rights::user("secret", "a*"));
        let place = Place::with(RedisOptions::new().with_user("locks", &rules));
        serve_untold(&place, place.config().with_login("locks", "secret")).await;
        assert_eq!(warnings(), 1, "warnings of a user with {denied}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiting_tasks_are_two_connections() {
    let place = Place::new();
    let holder = place.elsewhere().await;
    let guard = take(&holder, "a").await;
    let clients = || -> usize {
        let lines = |kind| {
            let list = place.command(&["CLIENT", "LIST", "TYPE", kind]).text();
            list.unwrap_or_default().lines().count()
        };
        // One of them polls.
        lines("normal") + lines("pubsub") - 1
    };
    // Renewals have a connection of their own.
    until("it is renewed", || clients() == 2).await;
    let locks = LocalQueue::new(place.elsewhere().await);
    // One that is renewed, and the tasks.
    let own = acquire(&locks, &request("own")).await;
    let mut tasks = JoinSet::new();
    for _ in 0..1_000 {
        let locks = locks.clone();
        tasks.spawn(async move {
            let guard = acquire(&locks, &within(request("a"), SOON * 6)).await;
            release(guard).await;
        });
    }
    place.queued("a", 1).await;
    tokio::time::sleep(TTL).await;
    assert_eq!((clients(), place.waiters("a")), (4, 1));
    release(guard).await;
    tasks.join_all().await;
    assert_eq!(clients(), 4);
    release(own).await;
    assert!(locks.shutdown(SOON).await);
    place.assert_nothing_left(&[&holder], "a").await;
}

#[tokio::test]
async fn dead_waiters_behind_a_live_one_go() {
    let place = Place::new();
    let locks = place.elsewhere().await;
    let guard = take(&locks, "a").await;
    let first = place
        .waiter(&locks, request("a").with_wait(Wait::Forever))
        .await;
    for n in 0..12 {
        // Dead for the queue after 2 s, when all of them are there.
        let dead = format!("{n:032x}|200|1000|1|x||");
        let queue = "{a}:waiters";
        place.command(&["XADD", queue, "*", "w", &dead]);
    }
    place.queued("a", 13).await;
    place.queued("a", 1).await;
    guard.release().await.expect("it is released");
    release(granted(first).await).await;
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn what_is_known_of_a_broken_lock_goes_while_others_wait() {
    let (place, locks, other) = Place::with_clients().await;
    let (notes, broken) = ("{a}:notes", "a".repeat(32));
    let guard = take(&locks, "a").await;
    let next = place.waiter(&locks, within(request("a"), SOON * 2)).await;
    break_lock(&other, "a").await;
    assert_eq!(loss(&guard).await, LostReason::Broken);
    let next = granted(next).await;
    let last = place.waiter(&other, within(request("a"), SOON * 2)).await;
    let kept = || {
        let fields = place.command(&["HKEYS", notes]);
        let fields = fields.items().iter().filter_map(Reply::text);
        fields.filter(|field| field.starts_with("b:")).count()
    };
    // That of the holder, and when it may go.
    assert_eq!(kept(), 2);
    place.command(&["HSET", notes, &format!("b:{broken}"), "1|long ago"]);
    place.command(&["HSET", notes, "b:", "1"]);
    until("a heartbeat of the waiter", || kept() == 0).await;
    next.release().await.expect("it is released");
    release(granted(last).await).await;
}
