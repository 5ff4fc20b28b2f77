//! A database host that loses power and comes back: its clients are not told that their sessions
//! ended.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresServer, PostgresStandby};
use lock_testkit::taker::Taker;
use polylock_core::layers::LocalQueue;
use polylock_core::{DistributedLock as _, ErrorKind, LockGuard, Wait};
use polylock_sql::SqlLock;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::server::support::{
    Database, Mode, SOON, Site, everywhere, key, on, request, sessions, take, take_and_release,
    until,
};
use crate::server::waiters::hold;

/// At a server of the test alone.
fn durable(site: &Site) -> Site {
    site.durable().with_session_timeout(TIMEOUT)
}

/// A holder that hears neither the end of its session nor anything else.
async fn unreachable_holder(site: &Site, proxy: &Proxy) -> (SqlLock, LockGuard) {
    let locks = site.open_at(proxy.port()).await;
    let guard = take(&locks, "job").await;
    proxy.refuse();
    proxy.hold(Direction::Both);
    (locks, guard)
}

async fn the_next_holder_waits_until_the_last_one_is_out(site: Site) {
    let site = durable(&site);
    let proxy = site.proxy();
    let (_locks, guard) = unreachable_holder(&site, &proxy).await;
    site.restart().await;
    let restarted = Instant::now();
    let next = Arc::new(site.open().await);
    // A refused attempt reports that the holder is unknown, not contention.
    let one = request("job").with_wait(Wait::Never);
    match next.acquire(&one).await {
        Ok(second) => assert_alone(&guard, &second, restarted).await,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(!error.is_outcome_unknown(), "{error}");
            let queue = LocalQueue::new(Arc::<SqlLock>::clone(&next));
            let short = request("job").with_wait(Wait::AtMost(TIMEOUT / 4));
            let error = queue.acquire(&short).await.expect_err("it grants nothing");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.message().contains("granted again in"), "{error}");
        }
    }
    let long = request("job").with_wait(Wait::AtMost(TIMEOUT * 3));
    let second = next.acquire(&long).await.expect("it is granted");
    assert_alone(&guard, &second, restarted).await;
    assert!(second.fencing_token() > guard.fencing_token());
    let after = restarted.elapsed();
    assert!(
        after < TIMEOUT + SOON,
        "granted {after:?} after the restart"
    );
    second.release().await.expect("it is released");
}

/// The first holder does not believe any more that it holds the lock.
async fn assert_alone(first: &LockGuard, second: &LockGuard, restarted: Instant) {
    if !first.is_held() {
        return;
    }
    let (granted, began) = (restarted.elapsed(), Instant::now());
    let lost = tokio::time::timeout(TIMEOUT * 2, first.lost()).await;
    lost.expect("two holders, and the first has no loss");
    let overlap = began.elapsed();
    let second = second.is_held();
    panic!("granted {granted:?} after the start, two held it for {overlap:?}, second: {second}");
}

sessions!(the_next_holder_waits_until_the_last_one_is_out);

/// A clock that is set back behind the start of the server is no new start: no request waits, and the
/// record of the holder stays for the next start.
async fn a_clock_that_is_set_back_hides_no_holder(mode: Mode) {
    let options = MariaDbOptions::new().with_durability(true).with_clock();
    let server = Arc::new(MariaDbServer::start(options));
    let site = Site::mariadb(&server, mode).with_session_timeout(TIMEOUT * 3);
    let proxy = site.proxy();
    let (_locks, guard) = unreachable_holder(&site, &proxy).await;
    let sessions = format!("SELECT HEX(lock_key) FROM {} WHERE kind = 6", site.table);
    let recorded = site.sql(&sessions).await;
    // The clock passes the start again at the end.
    for offset in [-3_600, 3_600, 0] {
        server.set_clock_offset(offset);
        let one = request("other").with_wait(Wait::Never);
        let other = site.open().await;
        let granted = other.acquire(&one).await.expect("it is granted");
        granted.release().await.expect("it is released");
        // A new session deletes the records of ended ones in the background.
        assert!(other.shutdown(SOON).await);
        let found = site.sql(&sessions).await;
        let is_there = |record| found.contains(record);
        assert!(recorded.iter().all(is_there), "clock {offset}: {found:?}");
    }
    site.restart().await;
    let restarted = Instant::now();
    let long = request("job").with_wait(Wait::AtMost(TIMEOUT * 5));
    let second = site.open().await.acquire(&long).await;
    let second = second.expect("it is granted");
    assert_alone(&guard, &second, restarted).await;
    second.release().await.expect("it is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_hides_no_holder_of_a_row() {
    a_clock_that_is_set_back_hides_no_holder(Mode::Row).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_hides_no_holder_of_an_advisory_lock() {
    a_clock_that_is_set_back_hides_no_holder(Mode::Advisory).await;
}

/// Holders that are notified of the end delete their records, so that no acquisition has to wait.
async fn a_restart_that_all_holders_learn_of_costs_no_timeout(site: Site) {
    let site = durable(&site).with_session_timeout(LONG_TIMEOUT);
    // One that ends in order has no record, as soon as the next one is written.
    let ended = site.open().await;
    take_and_release(&ended, "other").await;
    assert!(ended.shutdown(SOON).await);
    let locks = site.open().await;
    let guard = take(&locks, "job").await;
    site.restart().await;
    let restarted = Instant::now();
    let next = site.open().await;
    let long = request("job").with_wait(Wait::AtMost(LONG_TIMEOUT));
    let second = next.acquire(&long).await.expect("it is granted");
    assert_alone(&guard, &second, restarted).await;
    let after = restarted.elapsed();
    assert!(
        after < LONG_TIMEOUT / 2,
        "granted {after:?} after the restart"
    );
    second.release().await.expect("it is released");
}

sessions!(a_restart_that_all_holders_learn_of_costs_no_timeout);

async fn a_waiter_outlasts_a_restart(site: Site) {
    let site = durable(&site);
    let (holder, waiter) = (site.open().await, site.open().await);
    let guard = take(&holder, "job").await;
    let long = request("job").with_wait(Wait::AtMost(TIMEOUT * 3));
    let waiting = tokio::spawn(async move { waiter.acquire(&long).await });
    site.until_it_waits("job").await;
    site.restart().await;
    let token = larger(&guard, 0);
    let mut guard = Some(guard);
    if !site.is_session() {
        // A restart ends no lease.
        tokio::time::sleep(TIMEOUT / 4).await;
        if waiting.is_finished() {
            let ended = waiting.await.expect("no panic").map(drop);
            let held = guard.as_ref().is_some_and(LockGuard::is_held);
            panic!("it does not wait on: {ended:?}; the holder has the lock: {held}");
        }
        let guard = guard.take().expect("it was not released");
        guard.release().await.expect("it is held");
    }
    let next = waiting.await.expect("no panic").expect("it waits on");
    assert!(guard.is_none_or(|it| !it.is_held()), "two holders");
    larger(&next, token);
}

everywhere!(a_waiter_outlasts_a_restart);

/// The server may draw tokens again that it had not written to its disk, but no session does.
async fn tokens_grow_across_a_crash(site: Site) {
    let site = durable(&site);
    let mut last = 0;
    for round in 0..4 {
        let locks = site.open().await;
        for _ in 0..40 {
            let guard = take(&locks, "job").await;
            last = larger(&guard, last);
            guard.release().await.expect("it is released");
        }
        // Drawn last, and in a transaction that is open.
        let guard = take(&locks, "job").await;
        last = larger(&guard, last);
        if let (Database::Postgres(server), 1) = (&site.server, round % 2) {
            stop_immediately(server).await;
        }
        site.restart().await;
    }
    let guard = take(&site.open().await, "job").await;
    larger(&guard, last);
}

sessions!(tokens_grow_across_a_crash);

fn larger(guard: &LockGuard, last: u64) -> u64 {
    let token = guard.fencing_token().expect("there are tokens").value();
    assert!(token > last, "{token} came after {last}");
    token
}

/// As `pg_ctl stop -m immediate` does.
async fn stop_immediately(server: &Arc<PostgresServer>) {
    let file = server.sql("SELECT split_part(pg_read_file('postmaster.pid'), chr(10), 1)");
    let process = file[0][0].parse().ok().and_then(Pid::from_raw);
    kill_process(process.expect("a process"), Signal::QUIT).expect("it runs");
    until("the server is down", async || {
        server.try_sql("SELECT 1").is_err()
    })
    .await;
}

/// Each process ends sooner than the required wait after a restart.
async fn processes_that_end_at_once_need_not_wait(site: Site) {
    let site = durable(&site);
    let proxy = site.proxy();
    let (_locks, guard) = unreachable_holder(&site, &proxy).await;
    site.restart().await;
    let restarted = Instant::now();
    let mut refused = 0;
    loop {
        let taker = Taker::example("lock-taker", site.url());
        let take = taker.take(&key("job")).with_wait(Duration::ZERO);
        let take = take.with_hold(Duration::ZERO).with_rounds(1);
        let mut process = take.spawn().expect("it starts");
        let ended = tokio::task::spawn_blocking(move || process.wait()).await;
        if ended.expect("no panic").expect("it ends").success() {
            break;
        }
        refused += 1;
        assert!(restarted.elapsed() < TIMEOUT + SOON, "not granted");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(!guard.is_held(), "two holders");
    assert!(refused > 1, "{refused} processes were refused");
}

sessions!(processes_that_end_at_once_need_not_wait);

/// A standby that is promoted may lack records of sessions, and waits for the longest timeout.
async fn a_standby_waits_for_holders_that_it_does_not_know(site: Site) {
    let site = durable(&site);
    let proxy = site.proxy();
    let Database::Postgres(primary) = &site.server else {
        unreachable!("it is of that kind");
    };
    let first = site.open().await;
    take_and_release(&first, "other").await;
    let standby = PostgresStandby::of(primary);
    standby.catch_up(primary);
    standby.detach();
    for _ in 0..200 {
        take_and_release(&first, "other").await;
    }
    let (_locks, guard) = unreachable_holder(&site, &proxy).await;
    primary.kill();
    standby.promote();
    let promoted = Instant::now();
    let long = request("job").with_wait(Wait::AtMost(TIMEOUT * 3));
    let next = site.open_at(standby.port()).await;
    let second = next.acquire(&long).await.expect("it is granted");
    assert_alone(&guard, &second, promoted).await;
    // The standby has not heard of the tokens that were drawn since it was cut off.
    assert!(second.fencing_token() > guard.fencing_token());
    second.release().await.expect("it is released");
}

on!(a_standby_waits_for_holders_that_it_does_not_know: postgres_row, postgres_advisory);

/// The lock of a transaction ends with its work, and the session before it does not.
async fn a_transaction_is_refused_until_the_last_holder_is_out(site: Site) {
    let site = durable(&site);
    let proxy = site.proxy();
    let (_locks, guard) = unreachable_holder(&site, &proxy).await;
    site.restart().await;
    let restarted = Instant::now();
    loop {
        let error = match hold(&site, vec!["job".to_owned()]).await {
            Ok(held) => {
                assert!(!guard.is_held(), "two holders");
                break held.release().await;
            }
            Err(error) => error,
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_retryable(), "{error}");
        assert!(restarted.elapsed() < TIMEOUT + SOON, "not granted");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

on!(a_transaction_is_refused_until_the_last_holder_is_out: postgres_row, mariadb_row);

/// Clearly longer than a restart takes.
const LONG_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout of the sessions, longer than a server takes to come back.
const TIMEOUT: Duration = Duration::from_secs(8);
