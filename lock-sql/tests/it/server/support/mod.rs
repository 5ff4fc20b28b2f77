//! What the tests of servers share.

mod database;
mod forwarder;
mod harness;
pub(crate) mod requests;
mod site;
mod watch;

use std::time::{Duration, Instant};

use polylock_core::{AcquireRequest, DistributedLock, LockGuard, LockKey, LostReason, Wait};
use polylock_sql::SqlLock;

pub(crate) use self::database::Database;
pub(crate) use self::forwarder::Forwarder;
pub(crate) use self::harness::Store;
pub(crate) use self::site::{Kind, Mode, SESSION, Site};
pub(crate) use crate::until::until;

/// Enough time for a few requests on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("it is a key")
}

pub(crate) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name)).with_wait(Wait::AtMost(SOON * 2))
}

pub(crate) async fn take(locks: &SqlLock, name: &str) -> LockGuard {
    let taken = locks.acquire(&request(name)).await;
    taken.expect("a free lock is granted")
}

pub(crate) async fn take_and_release(locks: &SqlLock, name: &str) {
    let guard = take(locks, name).await;
    guard.release().await.expect("it is released");
}

/// Another client gets the lock.
pub(crate) async fn assert_free(site: &Site, name: &str) {
    take_and_release(&site.open().await, name).await;
}

/// Another client does not get the lock.
pub(crate) async fn assert_taken(site: &Site, name: &str) {
    let one = request(name).with_wait(Wait::Never);
    let refused = site.open().await.acquire(&one).await;
    let error = refused.expect_err("two holders");
    assert_eq!(error.kind(), polylock_core::ErrorKind::Contended, "{error}");
}

/// How the holder loses the lock, and after which time.
pub(crate) async fn loss(guard: &LockGuard, within: Duration) -> (LostReason, Duration) {
    let began = Instant::now();
    let lost = tokio::time::timeout(within, guard.lost().into_future()).await;
    (lost.expect("the loss is signaled"), began.elapsed())
}

/// Makes a test of an async function for each of these sites, `FUNCTION::SITE`.
macro_rules! on {
    ($body:ident: $($site:ident),* $(,)?) => {
        mod $body {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $site() {
                    super::$body(crate::server::support::Site::$site()).await;
                }
            )*
        }
    };
}

/// The same on both databases in all modes.
macro_rules! everywhere {
    ($body:ident) => {
        crate::server::support::on!(
            $body: postgres_row, postgres_lease, postgres_advisory,
            mariadb_row, mariadb_lease, mariadb_advisory
        );
    };
}

/// The same on both databases in the modes whose locks live with a session.
macro_rules! sessions {
    ($body:ident) => {
        crate::server::support::on!(
            $body: postgres_row, postgres_advisory, mariadb_row, mariadb_advisory
        );
    };
}

pub(crate) use {everywhere, on, sessions};
