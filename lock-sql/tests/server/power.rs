//! A database host that loses power and comes back: its clients are not told that their sessions
//! ended.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{DistributedLock as _, ErrorKind, LockGuard, Wait};
use lock_sql::SqlLock;
use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};
use tokio::time::Instant;

use crate::support::{Kind, Mode, SOON, Site, request, take};

/// A server of this test alone.
#[derive(Clone)]
enum Server {
    MariaDb(Arc<MariaDbServer>),
    Postgres(Arc<PostgresServer>),
}

impl Server {
    fn start(kind: Kind) -> Self {
        match kind {
            Kind::MariaDb => {
                let options = MariaDbOptions::new().with_durability(true);
                Self::MariaDb(Arc::new(MariaDbServer::start(options)))
            }
            Kind::Postgres => {
                Self::Postgres(Arc::new(PostgresServer::start(PostgresOptions::new())))
            }
        }
    }

    fn site(&self, mode: Mode) -> Site {
        let site = match self {
            Self::MariaDb(server) => Site::mariadb(server, mode),
            Self::Postgres(server) => Site::postgres(server, mode),
        };
        site.with_session_timeout(TIMEOUT)
    }

    fn proxy(&self) -> Proxy {
        match self {
            Self::MariaDb(server) => Proxy::mysql(server.port()),
            Self::Postgres(server) => Proxy::postgres(server.port()),
        }
    }

    /// SIGKILL, and a start on the same port with the same data.
    async fn restart(&self) {
        let server = self.clone();
        let restarted = tokio::task::spawn_blocking(move || match server {
            Self::MariaDb(server) => server.restart(),
            Self::Postgres(server) => server.restart(),
        });
        restarted.await.expect("it starts again");
    }
}

/// A holder that hears neither the end of its session nor anything else.
async fn unreachable_holder(site: &Site, proxy: &Proxy) -> (SqlLock, LockGuard) {
    let locks = site.open_at(proxy.port()).await;
    let guard = take(&locks, "job").await;
    proxy.refuse();
    proxy.hold(Direction::Both);
    (locks, guard)
}

async fn the_next_holder_waits_until_the_last_one_is_out(kind: Kind, mode: Mode) {
    let server = Server::start(kind);
    let (site, proxy) = (server.site(mode), server.proxy());
    let (_locks, guard) = unreachable_holder(&site, &proxy).await;
    server.restart().await;
    let restarted = Instant::now();
    let next = site.open().await;
    // Whoever cannot wait learns that nobody else is known to have the lock.
    let one = request("job").with_wait(Wait::Never);
    match next.acquire(&one).await {
        Ok(second) => assert_alone(&guard, &second, restarted).await,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(!error.is_outcome_unknown(), "{error}");
        }
    }
    let long = request("job").with_wait(Wait::AtMost(TIMEOUT * 3));
    let second = next.acquire(&long).await.expect("it is granted");
    assert_alone(&guard, &second, restarted).await;
    assert!(second.fencing_token() > guard.fencing_token());
    let after = restarted.elapsed();
    assert!(after < TIMEOUT + SOON, "{after:?}");
    second.release().await.expect("it is released");
}

/// The first holder does not believe any more that it holds the lock.
async fn assert_alone(first: &LockGuard, second: &LockGuard, restarted: Instant) {
    if !first.is_held() {
        return;
    }
    let (granted, began) = (restarted.elapsed(), Instant::now());
    first.lost().await;
    let overlap = began.elapsed();
    let second = second.is_held();
    panic!("granted {granted:?} after the start, two held it for {overlap:?}, second: {second}");
}

/// Makes a test of an async function for each database and mode of sessions.
macro_rules! on_each {
    ($body:ident) => {
        mod $body {
            use crate::support::{Kind, Mode};

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres_row() {
                super::$body(Kind::Postgres, Mode::Row).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres_advisory() {
                super::$body(Kind::Postgres, Mode::Advisory).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mariadb_row() {
                super::$body(Kind::MariaDb, Mode::Row).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mariadb_advisory() {
                super::$body(Kind::MariaDb, Mode::Advisory).await;
            }
        }
    };
}

on_each!(the_next_holder_waits_until_the_last_one_is_out);

/// The time-out of the sessions, longer than a server takes to come back.
const TIMEOUT: Duration = Duration::from_secs(8);
