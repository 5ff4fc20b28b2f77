//! Waiters whose server is away for a while: the wait goes on within its time.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::proxy::{Command, Direction, Fate, Then};
use polylock_core::engine::{BootClock, Engine, OnRuntime, OsEntropy};
use polylock_core::layers::LocalQueue;
use polylock_core::memory::Reachable;
use polylock_core::{DistributedLock, ErrorKind, LockUrl, Wait};
use polylock_sql::{SqlConfig, SqlLock};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::server::support::{
    SOON, Site, assert_free, everywhere, leases, ms, request, sessions, take,
};

/// The lock is released during the outage, so the waiter gets no notification.
async fn a_waiter_outlasts_an_outage(site: Site) {
    let proxy = site.proxy();
    let (holder, waiter) = (site.open().await, site.open_at(proxy.port()).await);
    let guard = take(&holder, "job").await;
    let token = guard.fencing_token();
    let waiting = tokio::spawn(async move { take(&waiter, "job").await });
    site.until_it_waits("job").await;
    proxy.set_reachable(Reachable::Cut);
    tokio::time::sleep(OUTAGE).await;
    guard.release().await.expect("it is released");
    assert!(!waiting.is_finished(), "it gave up");
    proxy.set_reachable(Reachable::Connected);
    let back = Instant::now();
    let next = waiting.await.expect("it waits on");
    assert!(back.elapsed() < SOON, "granted after {:?}", back.elapsed());
    assert!(next.fencing_token() > token);
    next.release().await.expect("it is released");
    site.assert_unlocked().await;
}

everywhere!(a_waiter_outlasts_an_outage);

/// At the end of the wait the state of the lock is unknown, even if it was known before.
async fn a_wait_that_ends_in_an_outage_is_no_contention(site: Site) {
    let holder = site.open().await;
    let guard = take(&holder, "job").await;
    for has_queue in [false, true] {
        site.until_nothing_waits("job").await;
        let proxy = site.proxy();
        let mut waiter: Arc<dyn DistributedLock> = Arc::new(site.open_at(proxy.port()).await);
        if has_queue {
            waiter = Arc::new(LocalQueue::new(waiter));
        }
        let short = request("job").with_wait(Wait::AtMost(OUTAGE * 4));
        let waiting = tokio::spawn(async move { waiter.acquire(&short).await.map(drop) });
        site.until_it_waits("job").await;
        proxy.set_reachable(Reachable::Cut);
        let refused = waiting.await.expect("no panic");
        let error = refused.expect_err("two holders");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{has_queue}: {error}");
    }
    // MariaDB goes on for a while with the wait of a client that it cannot reach.
    guard.release().await.expect("it is released");
    assert_free(&site, "job").await;
}

everywhere!(a_wait_that_ends_in_an_outage_is_no_contention);

/// A server that vanishes silently has not confirmed that the lock is still held.
async fn a_wait_that_ends_in_silence_is_no_contention(site: Site) {
    waits_in_silence(&site, |waiter| waiter).await;
}

everywhere!(a_wait_that_ends_in_silence_is_no_contention);

/// The queue of the process has one attempt for all of its waiters, which outlasts their waits.
async fn a_wait_in_the_queue_of_the_process_that_ends_in_silence_is_no_contention(site: Site) {
    waits_in_silence(&site, |waiter| Arc::new(LocalQueue::new(waiter))).await;
}

leases!(a_wait_in_the_queue_of_the_process_that_ends_in_silence_is_no_contention);

async fn waits_in_silence(
    site: &Site,
    layer: impl FnOnce(Arc<dyn DistributedLock>) -> Arc<dyn DistributedLock>,
) {
    let proxy = site.proxy();
    let holder = site.open().await;
    let waiter = layer(Arc::new(site.open_at(proxy.port()).await));
    let guard = take(&holder, "job").await;
    // A waiter that is notified polls every second, and a poll counts as unanswered after another one.
    let (began, wait) = (Instant::now(), OUTAGE * 4);
    let short = request("job").with_wait(Wait::AtMost(wait));
    let waiting = tokio::spawn(async move { waiter.acquire(&short).await.map(drop) });
    site.until_it_waits("job").await;
    proxy.refuse();
    proxy.hold(Direction::Both);
    let refused = waiting.await.expect("no panic");
    let error = refused.expect_err("two holders");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let late = began.elapsed().saturating_sub(wait);
    assert!(late < Duration::from_secs(2), "{late:?} late");
    proxy.accept();
    proxy.resume(Direction::Both);
    guard.release().await.expect("it is released");
    assert_free(site, "job").await;
}

async fn a_waiter_that_is_dropped_in_an_outage_leaves_nothing(site: Site) {
    let proxy = site.proxy();
    let (holder, waiter) = (site.open().await, site.open_at(proxy.port()).await);
    let waiter = Arc::new(waiter);
    let guard = take(&holder, "job").await;
    for pause in [ms(0), ms(20), ms(300), ms(700)] {
        let own = Arc::clone(&waiter);
        let waiting = tokio::spawn(async move {
            // The first request may meet a connection that broke in the outage before.
            while let Err(error) = own.acquire(&request("job")).await {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            }
        });
        site.until_it_waits("job").await;
        proxy.set_reachable(Reachable::Cut);
        tokio::time::sleep(pause).await;
        waiting.abort();
        assert!(waiting.await.is_err(), "two holders");
        proxy.set_reachable(Reachable::Connected);
    }
    // MariaDB goes on for a while with the wait of a client that it cannot reach.
    guard.release().await.expect("it is released");
    assert!(waiter.shutdown(SOON).await, "background work does not end");
    assert_free(&site, "job").await;
    site.assert_unlocked().await;
}

everywhere!(a_waiter_that_is_dropped_in_an_outage_leaves_nothing);

/// The waiter has the lock without knowing it. It neither holds it nor waits for its own lease to end.
async fn a_waiter_gives_up_what_it_was_granted_without_an_answer(site: Site) {
    let proxy = site.proxy();
    let (holder, waiter) = (site.open().await, site.open_at(proxy.port()).await);
    let guard = take(&holder, "job").await;
    let waiting = tokio::spawn(async move { take(&waiter, "job").await });
    site.until_it_waits("job").await;
    let takes = ["l.queued_until <= ", "h.version = d.v"];
    let lost = proxy.plan(
        move |command| {
            (command.is("EXECUTE") || command.is("QUERY"))
                && takes.iter().any(|text| command.arg(1).contains(text))
        },
        Fate::LostReply(Then::Cut),
    );
    let token = guard.fencing_token();
    guard.release().await.expect("it is released");
    let released = Instant::now();
    let next = waiting.await.expect("it waits on");
    assert_eq!(lost.struck(), 1, "every answer arrived");
    let after = released.elapsed();
    assert!(after < SOON, "it waited {after:?} for itself");
    assert!(next.is_held() && next.fencing_token() > token);
    // The late undo of the first attempt does not affect the second one.
    tokio::time::sleep(OUTAGE).await;
    assert!(next.is_held(), "the lock was released behind its holder");
    next.release().await.expect("it is in time");
    assert_free(&site, "job").await;
}

leases!(a_waiter_gives_up_what_it_was_granted_without_an_answer);

/// The server may have executed the release before the connection ended, or not.
async fn a_release_without_an_answer_has_an_unknown_outcome(site: Site) {
    let proxy = site.proxy();
    let locks = site.open_at(proxy.port()).await;
    let guard = take(&locks, "job").await;
    let lost = proxy.plan(is_release, Fate::LostReply(Then::Cut));
    let error = guard.release().await.expect_err("nothing was answered");
    assert_eq!(lost.struck(), 1, "the answer to the release arrived");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    assert!(locks.shutdown(SOON).await, "the release goes on and on");
    assert_free(&site, "job").await;
}

sessions!(a_release_without_an_answer_has_an_unknown_outcome);

/// Whether it is the release of a lock that lives with its session.
fn is_release(command: &Command) -> bool {
    let releases = ["ROLLBACK", "pg_advisory_unlock", "RELEASE_LOCK"];
    (command.is("EXECUTE") || command.is("QUERY"))
        && releases.iter().any(|text| command.arg(1).contains(text))
}

/// The task of a session is gone with its runtime, after it has sent the release.
async fn a_release_whose_task_ends_has_an_unknown_outcome(site: Site) {
    // The timeout of a release is a third of it: 5 s.
    let site = site.with_session_timeout(Duration::from_secs(15));
    let proxy = site.proxy();
    let runtime = OwnRuntime::start();
    let url = LockUrl::parse(&site.url_at(proxy.port())).expect("a URL");
    let config = SqlConfig::from_url(&url).expect("a configuration");
    let locks = SqlLock::connect(config.with_engine(runtime.engine())).await;
    let locks = locks.expect("the server takes it");
    let guard = take(&locks, "job").await;
    let lost = proxy.plan(is_release, Fate::LostReply(Then::Silent));
    let released = tokio::spawn(guard.release());
    lost.met(SOON).await;
    drop(runtime);
    let released = released.await.expect("no panic");
    let error = released.expect_err("nothing was answered");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    assert_free(&site, "job").await;
}

sessions!(a_release_whose_task_ends_has_an_unknown_outcome);

/// A runtime that ends when this is dropped.
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn start() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build();
        Self(Some(runtime.expect("a runtime")))
    }

    /// The engine of a client whose tasks run there.
    fn engine(&self) -> Engine {
        let _inside = self.0.as_ref().map(Runtime::enter);
        let (clock, entropy) = (Arc::<BootClock>::default(), Arc::<OsEntropy>::default());
        Engine::with("test", clock, entropy, Arc::new(OnRuntime::current()))
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // To drop it would block, which async code must not.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Longer than a place in the queue is kept for a waiter that says nothing.
const OUTAGE: Duration = Duration::from_millis(1500);
