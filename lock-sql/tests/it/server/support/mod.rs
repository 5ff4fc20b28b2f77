//! What the tests of servers share.

mod database;
mod forwarder;
mod harness;
mod reply_changer;
pub(crate) mod requests;
mod site;
mod watch;

use std::time::{Duration, Instant};

use lock_testkit::locks::assert_error;
pub(crate) use lock_testkit::locks::{key, ms, until};
use polylock_core::{AcquireRequest, DistributedLock, ErrorKind, LockGuard, LostReason, Wait};

pub(crate) use self::database::Database;
pub(crate) use self::forwarder::Forwarder;
pub(crate) use self::harness::Store;
pub(crate) use self::reply_changer::{ReplyChanger, connect};
pub(crate) use self::site::{Kind, Mode, SESSION, Site};
pub(crate) use self::watch::kill;

/// Enough time for a few requests on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);

pub(crate) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name)).with_wait(Wait::AtMost(SOON * 2))
}

pub(crate) async fn take(locks: &dyn DistributedLock, name: &str) -> LockGuard {
    lock_testkit::locks::acquire(locks, &request(name)).await
}

pub(crate) async fn take_and_release(locks: &dyn DistributedLock, name: &str) {
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
    assert_error(&site.open().await, &one, ErrorKind::Contended).await;
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

/// The same on both databases for leases.
macro_rules! leases {
    ($body:ident) => {
        crate::server::support::on!($body: postgres_lease, mariadb_lease);
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

pub(crate) use {everywhere, leases, on, sessions};
