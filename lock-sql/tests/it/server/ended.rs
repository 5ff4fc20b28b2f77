//! Sessions that the server ends, on an order or by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use lock_testkit::locks::{acquire, release, token};
use lock_testkit::proxy::{Command, Direction, Fate};
use lock_testkit::servers::{
    MariaDbOptions, MariaDbServer, PgBouncer, PoolMode, PostgresOptions, PostgresServer,
};
use polylock_core::layers::LocalQueue;
use polylock_core::memory::Request;
use polylock_core::{AcquireRequest, DistributedLock as _, ErrorKind, LostReason, Released};
use rustix::process::{Pid, Signal, kill_process};

use crate::server::support::{
    Kind, Mode, SESSION, SOON, Site, assert_free, assert_taken, everywhere, key, leases, loss, ms,
    on, request, requests, sessions, take, take_and_release, until,
};

/// The holder learns it from the end of its connection, before the next heartbeat.
async fn the_holder_learns_of_the_end_of_its_session_at_once(site: Site) {
    let site = site.with_session_timeout(Duration::from_secs(30));
    let locks = site.open().await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let guard = take(&locks, "job").await;
        // Within the first moment of a hold, the next heartbeat comes soon enough.
        tokio::time::sleep(ms(250)).await;
        let session = site.holder("job").await;
        site.kill(session).await;
        let (reason, after) = loss(&guard, LOST_WITHIN).await;
        assert_eq!(reason, LostReason::SessionEnded);
        times.push(after);
        drop(guard);
    }
    times.sort_unstable();
    assert!(
        times[ROUNDS / 2] < AT_ONCE,
        "the holder was told after {times:?}"
    );
}

sessions!(the_holder_learns_of_the_end_of_its_session_at_once);

/// One statement asks why the session has ended, and not one for each lock.
async fn all_holders_of_a_session_learn_of_its_end_together(site: Site) {
    let mut shortest = Duration::MAX;
    // A busy machine may stop the client while it notifies them.
    for _ in 0..3 {
        shortest = shortest.min(between_the_first_and_the_last_of_100(&site).await);
        if shortest < ms(150) {
            return;
        }
    }
    panic!("the last one was told after {shortest:?}");
}

async fn between_the_first_and_the_last_of_100(site: &Site) -> Duration {
    let proxy = site.proxy();
    let locks = site.open_at(proxy.port()).await;
    let mut held = Vec::new();
    for n in 0..100 {
        held.push(take(&locks, &format!("job/{n}")).await);
    }
    let session = site.holder("job/99").await;
    assert_eq!(site.holder("job/0").await, session);
    proxy.set_latency(Direction::Replies, ms(10));
    site.kill(session).await;
    let times = held.into_iter().map(|guard| async move {
        loss(&guard, LOST_WITHIN).await;
        Instant::now()
    });
    let mut times = join_all(times).await;
    times.sort_unstable();
    times[times.len() - 1] - times[0]
}

on!(
    all_holders_of_a_session_learn_of_its_end_together: postgres_advisory, mariadb_advisory
);

/// The first broken connection is a sign for the others: a release meets one of them at most.
async fn connections_that_end_together_cost_one_attempt(site: Site) {
    let locks = site.open().await;
    for _ in 0..ROUNDS {
        let (first, second, third) = tokio::join!(
            take(&locks, "first"),
            take(&locks, "second"),
            take(&locks, "third")
        );
        site.kill_all().await;
        for guard in [first, second, third] {
            release(guard).await;
        }
    }
}

leases!(connections_that_end_together_cost_one_attempt);

/// As after a restart of the server, which closes connections that are idle.
async fn a_list_goes_on_over_another_connection(site: Site) {
    let locks = site.open().await;
    let admin = locks.admin().expect("there is one");
    for _ in 0..ROUNDS {
        admin.list("").await.expect("it answers");
        site.kill_all().await;
        admin.list("").await.expect("it answers");
        site.kill_all().await;
        admin.inspect(&key("job")).await.expect("it answers");
    }
}

everywhere!(a_list_goes_on_over_another_connection);

/// An attempt to renew is given up after a second; its connection is opened for the next one.
async fn a_login_that_outlasts_an_attempt_to_renew_costs_no_lease(site: Site) {
    let proxy = site.proxy();
    let locks = site.open_at(proxy.port()).await;
    let guard = acquire(&locks, &long("job")).await;
    // A question and its answer fit into an attempt, and no login does.
    proxy.set_latency(Direction::Replies, ms(600));
    proxy.cut();
    let begun = Instant::now();
    while let Err(error) = guard.renew().await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let passed = begun.elapsed();
        assert!(passed < Duration::from_secs(20), "not renewed: {error:?}");
    }
    proxy.clear();
    guard.release().await.expect("it is held");
}

leases!(a_login_that_outlasts_an_attempt_to_renew_costs_no_lease);

async fn a_waiter_whose_session_is_ended_waits_on(site: Site) {
    let (holder, waiter) = (site.open().await, site.open().await);
    let guard = take(&holder, "job").await;
    let waiting = tokio::spawn(async move { take(&waiter, "job").await });
    until("it waits", async || site.waiters().await > 0).await;
    let holder = site.holder("job").await;
    for session in site.sessions().await {
        if session != holder {
            site.kill(session).await;
        }
    }
    tokio::time::sleep(ms(100)).await;
    assert!(guard.is_held());
    guard.release().await.expect("it is released");
    let next = waiting.await.expect("it is granted");
    next.release().await.expect("it is released");
}

sessions!(a_waiter_whose_session_is_ended_waits_on);

/// The reply to an acquisition comes after the server has ended the silent session, and freed the lock.
async fn a_grant_that_comes_after_its_session_is_no_guard(site: Site) {
    let site = site.with("timeout=20s");
    let (proxy, mode) = (site.proxy(), site.mode);
    let locks = site.open_at(proxy.port()).await;
    // The rows and a session are there for the next acquisition.
    take_and_release(&locks, "job").await;
    let is_acquisition =
        move |command: &Command| requests::of(command, mode) == Some(Request::Acquire);
    let late = proxy.plan(is_acquisition, Fate::LateReply(SESSION + ms(500)));
    let acquired = locks.acquire(&request("job")).await;
    assert_eq!(late.struck(), 1, "no reply was late");
    match acquired {
        // In another session, or in one that has answered since.
        Ok(guard) => {
            assert!(guard.is_held(), "a guard of a session that has ended");
            assert_taken(&site, "job").await;
            release(guard).await;
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
    }
    assert!(locks.shutdown(SOON).await, "background work does not end");
    assert_free(&site, "job").await;
    site.assert_unlocked().await;
}

sessions!(a_grant_that_comes_after_its_session_is_no_guard);

/// PostgreSQL notifies the holder, which would otherwise learn of the loss at its next renewal.
async fn the_holder_of_a_broken_lease_learns_it_at_once(site: Site) {
    let (locks, operator) = (site.open().await, site.open().await);
    let operator = operator.admin().expect("there is one");
    // A process listens when it has held a lease for a second.
    let other = locks.acquire(&long("other")).await.expect("it is free");
    until("it listens", async || {
        let listening = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'
             AND query LIKE 'LISTEN%' AND state = 'idle'",
            site.table
        );
        site.number(listening).await > 0
    })
    .await;
    for _ in 0..ROUNDS {
        let guard = locks.acquire(&long("job")).await.expect("it is free");
        let broken = operator.break_lock(&key("job"), "a test").await;
        assert!(broken.expect("it is broken").is_some());
        // The next renewal would be in 20 s.
        let (reason, _) = loss(&guard, LOST_WITHIN).await;
        assert_eq!(reason, LostReason::Broken);
    }
    other.release().await.expect("it is released");
}

on!(the_holder_of_a_broken_lease_learns_it_at_once: postgres_lease);

/// A process sends itself a message to find out whether it hears, and what comes before that counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_while_the_holder_begins_to_listen_is_heard() {
    let site = Site::postgres_lease();
    let proxy = site.proxy();
    let (locks, operator) = (site.open_at(proxy.port()).await, site.open().await);
    let operator = operator.admin().expect("there is one");
    let to_itself = |command: &Command| {
        command.is("EXECUTE") && command.arg(1).starts_with("SELECT pg_notify(")
    };
    let late = proxy.plan(to_itself, Fate::LateRequest(ms(400)));
    let guard = locks.acquire(&long("job")).await.expect("it is free");
    late.met(SOON).await;
    let broken = operator.break_lock(&key("job"), "a test").await;
    assert!(broken.expect("it is broken").is_some());
    let (reason, _) = loss(&guard, LOST_WITHIN).await;
    assert_eq!(reason, LostReason::Broken);
}

/// A lease that is renewed every 20 s.
fn long(name: &str) -> AcquireRequest {
    request(name).with_ttl(Duration::from_secs(60))
}

/// The records of a copy name the sessions of the original.
async fn a_break_in_a_copy_of_the_table_ends_no_session_of_the_original(site: Site) {
    let url = match site.kind() {
        Kind::MariaDb => MariaDbServer::shared().database(),
        Kind::Postgres => PostgresServer::shared().database(),
    };
    let mut copy = site.clone();
    url.rsplit('/')
        .next()
        .unwrap_or_default()
        .clone_into(&mut copy.database);
    let (locks, other) = (site.open().await, copy.open().await);
    take_and_release(&other, "other").await;
    let guard = take(&locks, "job").await;
    site.holder("job").await;
    let (table, of_holder) = (&site.table, "WHERE kind IN (3, 4)");
    match site.kind() {
        Kind::MariaDb => {
            let original = format!("{}.{table}", site.database);
            let insert = format!("INSERT IGNORE INTO {table} SELECT * FROM {original} {of_holder}");
            copy.sql(insert).await;
        }
        Kind::Postgres => {
            let rows = format!("SELECT quote_literal(r::text) FROM {table} r {of_holder}");
            for row in site.sql(rows).await {
                let insert = format!("INSERT INTO {table} SELECT ({}::{table}).*", row[0]);
                copy.sql(insert).await;
            }
        }
    }
    let operator = other.admin().expect("there is one");
    let listed = operator.list("").await.expect("it answers");
    assert!(listed.is_empty(), "{listed:?}");
    let broken = operator.break_lock(&key("job"), "a test").await;
    assert!(broken.expect("it answers").is_none());
    take_and_release(&other, "job").await;
    let original = locks.admin().expect("there is one");
    let info = original.inspect(&key("job")).await.expect("it answers");
    assert!(info.is_some_and(|info| info.holders.len() == 1));
    let released = guard.release().await.expect("it is released");
    assert_eq!(released, Released::Clean);
}

sessions!(a_break_in_a_copy_of_the_table_ends_no_session_of_the_original);

/// One process of PostgreSQL that is killed takes all sessions with it, and the server recovers.
#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_is_killed_costs_all_sessions_and_no_lease() {
    let server = Arc::new(PostgresServer::start(PostgresOptions::new()));
    let sites = [Mode::Row, Mode::Advisory, Mode::Lease].map(|mode| Site::postgres(&server, mode));
    let mut held = Vec::new();
    for site in &sites {
        let locks = site.open().await;
        let guard = take(&locks, "job").await;
        held.push((site, locks, guard));
    }
    kill_backend(&sites[0]).await;
    for (site, locks, guard) in held {
        if site.is_session() {
            let (reason, _) = loss(&guard, LOST_WITHIN).await;
            assert_eq!(reason, LostReason::SessionEnded);
        } else {
            assert!(guard.is_held());
        }
        until_it_recovers(&server).await;
        let guard_token = guard.fencing_token();
        // A release on an old connection is retried in the background.
        match guard.release().await {
            Ok(Released::AlreadyLost) => assert!(site.is_session()),
            Ok(_) => assert!(!site.is_session()),
            Err(error) => assert!(error.is_outcome_unknown(), "{error}"),
        }
        let again = take(&locks, "job").await;
        // It recovers without a new start, and may draw tokens again that it had not written.
        assert!(again.fencing_token() > guard_token);
        again.release().await.expect("it is released");
    }
}

/// Behind a pooler, connections of clients outlast a crash that makes the server forget tokens.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_across_a_crash_behind_a_pooler() {
    let options = PostgresOptions::new().with_config("wal_writer_delay", "10s");
    let server = Arc::new(PostgresServer::start(options));
    let settings = [("server_login_retry", "1")];
    let pooler = PgBouncer::with_config(&server, PoolMode::Transaction, &settings);
    let site = Site::postgres(&server, Mode::Row).with("pooler=transaction");
    let (first, second) = (
        site.open_at(pooler.port()).await,
        site.open_at(pooler.port()).await,
    );
    take_and_release(&second, "other").await;
    let mut last = None;
    for _ in 0..100 {
        let guard = take(&first, "job").await;
        last = guard.fencing_token();
        guard.release().await.expect("it is released");
    }
    let guard = take(&first, "job").await;
    last = last.max(guard.fencing_token());
    kill_backend(&site).await;
    until_it_recovers(&server).await;
    // The pooler may refuse connections for a moment longer.
    let deadline = Instant::now() + Duration::from_secs(30);
    let again = loop {
        match second.acquire(&request("job")).await {
            Ok(guard) => break guard,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(Instant::now() < deadline, "{error}");
                tokio::time::sleep(ms(50)).await;
            }
        }
    };
    assert!(again.fencing_token() > last, "{again:?} after {last:?}");
    drop(guard);
    again.release().await.expect("it is released");
}

/// Kills the process of PostgreSQL that serves the holder.
async fn kill_backend(site: &Site) {
    let victim = i32::try_from(site.holder("job").await).ok();
    let victim = victim.and_then(Pid::from_raw).expect("a process");
    kill_process(victim, Signal::KILL).expect("it runs");
}

async fn until_it_recovers(server: &PostgresServer) {
    let recovers = async || server.try_sql("SELECT 1").is_ok();
    until("the server recovers", recovers).await;
}

/// The server frees the row when the connections of the pooler close.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_learns_of_the_end_of_its_pooler_by_its_next_probe() {
    let site = Site::postgres_row().with_session_timeout(Duration::from_secs(30));
    let server = PostgresServer::shared();
    let pooler = PgBouncer::before_shared(&server, PoolMode::Transaction);
    let pooled = site.clone().with("pooler=transaction");
    let (locks, direct) = (pooled.open_at(pooler.port()).await, site.open().await);
    let guard = take(&locks, "job").await;
    pooler.kill();
    let (reason, _) = loss(&guard, LOST_WITHIN).await;
    assert_eq!(reason, LostReason::SessionEnded);
    let next = take(&direct, "job").await;
    assert!(next.fencing_token() > guard.fencing_token());
    next.release().await.expect("it is released");
}

/// A session that opens waits for a standby that is gone. The others go on drawing tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_waits_for_a_standby_stops_no_other() {
    let server = Arc::new(PostgresServer::start(PostgresOptions::new()));
    // A session that rests for half of its timeout ends, and the next one would wait as well.
    let [site, advisory] = [Mode::Row, Mode::Advisory]
        .map(|mode| Site::postgres(&server, mode).with_session_timeout(Duration::from_secs(120)));
    let (locks, advisory) = (site.open().await, advisory.open().await);
    for locks in [&locks, &advisory] {
        take_and_release(locks, "job").await;
    }
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'gone'; SELECT pg_reload_conf()");
    // It waits for as long as the others take, also on a busy machine.
    let patient = site.clone().with("timeout=1m");
    let opening = tokio::spawn(async move { drop(take(&patient.open().await, "other").await) });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("a session waits", async || server.sql(waits)[0][0] != "0").await;
    // More than one record of the sequence is worth.
    for _ in 0..40 {
        for locks in [&locks, &advisory] {
            take_and_release(locks, "job").await;
        }
    }
    assert!(!opening.is_finished(), "it has not waited");
    server.sql("ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()");
    opening.await.expect("no panic");
}

/// A hand-over in a session draws its tokens while commits wait for a standby that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_waits_for_no_standby() {
    // A session without locks ends after half of its timeout, and the next one would wait.
    let site = Site::postgres_advisory().alone();
    let site = site.with_session_timeout(Duration::from_secs(120));
    let (locks, other) = (site.open().await, site.open().await);
    take_and_release(&other, "free").await;
    let queue = LocalQueue::new(Arc::new(locks));
    let job = request("job");
    let (first, beside) = (
        acquire(&queue, &job).await,
        acquire(&queue, &request("beside")).await,
    );
    site.sql("ALTER SYSTEM SET synchronous_standby_names = 'gone'; SELECT pg_reload_conf()")
        .await;
    let patient = site.clone().with("timeout=1m");
    let opening = tokio::spawn(async move {
        // It may give up before the standby is not needed any more.
        drop(patient.open().await.acquire(&request("new")).await);
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("a session waits", async || site.number(waits).await > 0).await;
    let mut next = queue.acquire(&job);
    assert!((&mut next).now_or_never().is_none(), "it is held");
    let (next, ()) = tokio::join!(next, release(first));
    let next = next.expect("it is handed over");
    // The block of the hand-over comes between the two.
    let free = take(&other, "free").await;
    assert!(token(&free) > token(&next) + 32, "not handed over");
    assert!(site.number(waits).await > 0, "no commit waits any more");
    site.sql("ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()")
        .await;
    for guard in [next, free, beside] {
        release(guard).await;
    }
    opening.await.expect("no panic");
}

/// After a planned switchover the former primary goes on to answer, and the locks are granted elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_becomes_read_only_ends_its_sessions() {
    let server = Arc::new(MariaDbServer::start(MariaDbOptions::new()));
    let sites = [Mode::Row, Mode::Advisory].map(|mode| {
        let site = Site::mariadb(&server, mode);
        site.with_session_timeout(Duration::from_secs(30))
    });
    let mut held = Vec::new();
    for site in &sites {
        let locks = site.open().await;
        let guard = take(&locks, "job").await;
        held.push((locks, guard));
    }
    server.sql("SET GLOBAL read_only = 1");
    for (_, guard) in &held {
        let (reason, _) = loss(guard, LOST_WITHIN).await;
        assert_eq!(reason, LostReason::SessionEnded);
    }
}

/// The client ends a session in which it cannot undo a lock: the holders of the others come first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_cannot_release_ends_after_its_holders_know() {
    let site = Site::mariadb_advisory().alone();
    let site = site.with_session_timeout(Duration::from_secs(30));
    let proxy = site.proxy();
    let (holder, waiter) = (site.open_at(proxy.port()).await, site.open().await);
    let first = Arc::new(take(&holder, "first").await);
    let waiting = tokio::spawn({
        let first = Arc::clone(&first);
        async move {
            let next = take(&waiter, "first").await;
            (next, first.is_held())
        }
    });
    site.until_it_waits("first").await;
    // The statement that takes is prepared by now, the one that releases is not.
    site.sql("SET GLOBAL max_prepared_stmt_count = 0").await;
    let second = take(&holder, "second").await;
    // The holder asks why its session has ended, and others are faster.
    proxy.set_latency(Direction::Replies, ms(100));
    let error = second.release().await.expect_err("it is refused");
    assert!(error.is_outcome_unknown(), "{error}");
    let (_next, both_hold) = waiting.await.expect("no panic");
    assert!(!both_hold, "a waiter was granted a lock that is held");
    let (reason, _) = loss(&first, LOST_WITHIN).await;
    assert_eq!(reason, LostReason::SessionEnded);
}

/// A backup can stop all writes while somebody waits; `waits` counts those on the server.
async fn a_waiter_stops_no_backup(site: Site, waiter: AcquireRequest, waits: &str) {
    let site = site.alone();
    let (holder, locks) = (site.open().await, site.open().await);
    let guard = take(&holder, "job").await;
    let waiting = tokio::spawn(async move { drop(acquire(&locks, &waiter).await) });
    until("it waits", async || site.number(waits).await > 0).await;
    let began = Instant::now();
    site.sql("FLUSH TABLES WITH READ LOCK; UNLOCK TABLES").await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "the backup waited {took:?}");
    guard.release().await.expect("it is released");
    waiting.await.expect("no panic");
}

/// A waiter has no table open.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_for_an_advisory_lock_of_mariadb_stops_no_backup() {
    let waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'";
    a_waiter_stops_no_backup(Site::mariadb_advisory(), request("job"), waits).await;
}

/// It has the table open for reads alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_for_a_shared_row_lock_of_mariadb_stops_no_backup() {
    let shared = request("job").with_mode(polylock_core::Mode::Shared);
    let waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID()
         AND info LIKE '% SHARE%' AND info NOT LIKE '%NOWAIT%'";
    a_waiter_stops_no_backup(Site::mariadb_row(), shared, waits).await;
}

/// With this many rounds, a heartbeat once a second cannot come at the right moment by chance.
const ROUNDS: usize = 7;

/// A round trip, a query for the reason, and a busy machine; the next heartbeat would come later.
const AT_ONCE: Duration = Duration::from_millis(600);

/// The interval of heartbeats, a round trip, and a busy machine.
const LOST_WITHIN: Duration = Duration::from_secs(3);
