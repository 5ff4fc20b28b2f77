//! Renewals of rows that other transactions keep locked.

use std::time::Duration;

use futures_util::future::join_all;
use lock_testkit::locks::acquire;
use lock_testkit::proxy::Direction;
use polylock_core::{DistributedLock as _, LockGuard, LostReason, Mode};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, PgConnection, raw_sql};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::server::support::{Kind, Site, leases, loss, ms, request, take_and_release};

/// Another client of the database.
pub(super) enum Other {
    MariaDb(MySqlConnection),
    Postgres(PgConnection),
}

impl Other {
    pub(super) async fn open(site: &Site) -> Self {
        let url = site.plain_url();
        match site.kind() {
            Kind::MariaDb => Self::MariaDb(MySqlConnection::connect(&url).await.expect("it is up")),
            Kind::Postgres => Self::Postgres(PgConnection::connect(&url).await.expect("it is up")),
        }
    }

    pub(super) async fn run(&mut self, text: impl Into<String>) {
        let sql = raw_sql(AssertSqlSafe(text.into()));
        match self {
            Self::MariaDb(raw) => drop(sql.execute(raw).await.expect("it is done")),
            Self::Postgres(raw) => drop(sql.execute(raw).await.expect("it is done")),
        }
    }

    /// Locks a row in a transaction, which ends with the connection.
    async fn lock(&mut self, site: &Site, name: &str, slot: u32) {
        let (table, key) = (&site.table, site.bytes(name.as_bytes()));
        self.run(format!(
            "BEGIN; SELECT 1 FROM {table} WHERE kind = 1 AND lock_key = {key} AND slot = {slot} FOR UPDATE"
        ))
        .await;
    }
}

/// Keeps a row locked until the value is dropped.
async fn lock_row(site: &Site, name: &str, slot: u32) -> Other {
    let mut other = Other::open(site).await;
    other.lock(site, name, slot).await;
    other
}

async fn take_all(locks: &polylock_sql::SqlLock, mode: Mode) -> Vec<LockGuard> {
    let name = |n: usize| match mode {
        Mode::Shared => "shared".to_owned(),
        _ => format!("job/{n}"),
    };
    let mut guards = Vec::new();
    for n in 0..count(mode) {
        let request = request(&name(n)).with_ttl(TTL).with_mode(mode);
        guards.push(acquire(locks, &request).await);
    }
    guards
}

fn count(mode: Mode) -> usize {
    match mode {
        Mode::Shared => 4,
        _ => 500,
    }
}

/// A lease survives while other transactions run.
async fn assert_kept_beside<T>(guard: LockGuard, others: impl Future<Output = T>) {
    tokio::select! {
        biased;
        reason = guard.lost() => panic!("{reason:?}"),
        _ = others => {}
    }
    guard.release().await.expect("it is released");
}

/// The leases of a process are renewed together.
async fn a_locked_row_costs_no_other_lease(site: Site) {
    let locks = site.open().await;
    let mut guards = take_all(&locks, Mode::Exclusive).await;
    let exclusive = guards.remove(250);
    let mut shared = take_all(&locks, Mode::Shared).await;
    let sharer = shared.remove(1);
    guards.append(&mut shared);
    let row = lock_row(&site, "job/250", 0).await;
    let slot = lock_row(&site, "shared", 2).await;
    let until = Instant::now() + TTL;
    for stuck in [&exclusive, &sharer] {
        let (reason, _) = loss(stuck, TTL * 3).await;
        assert_eq!(reason, LostReason::Unreachable);
    }
    sleep_until(until).await;
    let lost = guards
        .iter()
        .filter_map(|guard| Some((guard.key(), guard.lost().reason()?)));
    assert_eq!(lost.collect::<Vec<_>>(), [], "for a row of another one");
    drop((row, slot));
    for guard in guards {
        guard.release().await.expect("it is released");
    }
}

leases!(a_locked_row_costs_no_other_lease);

/// Several attempts at a renewal find the row locked.
async fn a_row_that_is_free_again_in_time_costs_no_lease(site: Site) {
    let locks = site.open().await;
    let mut row = Other::open(&site).await;
    let guard = acquire(&locks, &request("job").with_ttl(TTL)).await;
    row.lock(&site, "job", 0).await;
    sleep(TTL * 6 / 10).await;
    drop(row);
    assert!(timeout(TTL, guard.lost().into_future()).await.is_err());
    guard.release().await.expect("it is released");
}

leases!(a_row_that_is_free_again_in_time_costs_no_lease);

/// Each unlock passes the row to the next waiting transaction.
async fn a_row_that_is_never_free_costs_no_lease(site: Site) {
    let locks = site.open().await;
    let guard = acquire(&locks, &request("job").with_ttl(TTL)).await;
    let others = join_all((0..3).map(async |_| {
        let mut other = Other::open(&site).await;
        let until = Instant::now() + TTL;
        while Instant::now() < until {
            other.lock(&site, "job", 0).await;
            sleep(ms(20)).await;
            other.run("COMMIT").await;
        }
    }));
    assert_kept_beside(guard, others).await;
}

leases!(a_row_that_is_never_free_costs_no_lease);

/// Holders of a shared lock come and go in other processes.
async fn a_row_that_others_write_all_the_time_costs_no_lease(site: Site) {
    let locks = site.open().await;
    let brief = request("hot").with_ttl(TTL).with_mode(Mode::Shared);
    let guard = acquire(&locks, &brief).await;
    let others = join_all((0..4).map(async |_| {
        let locks = site.open().await;
        let until = Instant::now() + TTL;
        while Instant::now() < until {
            // It may give up against the others.
            if let Ok(guard) = locks.acquire(&brief).await {
                guard.release().await.expect("it is released");
            }
        }
    }));
    assert_kept_beside(guard, others).await;
}

leases!(a_row_that_others_write_all_the_time_costs_no_lease);

/// It hangs when renewals are due, and its replies are late after that.
async fn a_slow_network_costs_no_lease_that_can_be_renewed(site: Site) {
    let proxy = site.proxy();
    let locks = site.open_at(proxy.port()).await;
    let taken = (0..64).map(async |n| {
        let request = request(&format!("job/{n}")).with_ttl(TTL);
        acquire(&locks, &request).await
    });
    let guards = join_all(taken).await;
    sleep(TTL / 4).await;
    proxy.hold(Direction::Both);
    sleep(TTL / 4).await;
    proxy.set_latency(Direction::Replies, ms(300));
    proxy.resume(Direction::Both);
    sleep(TTL).await;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0, "leases were lost");
    proxy.clear();
}

leases!(a_slow_network_costs_no_lease_that_can_be_renewed);

/// Neither renewals nor other requests need a connection more than there is.
async fn a_server_without_room_costs_no_lease(site: Site) {
    let site = site.alone();
    let locks = site.open().await;
    let guard = acquire(&locks, &request("job").with_ttl(TTL)).await;
    site.sql(match site.kind() {
        Kind::MariaDb => "ALTER USER test@'%' WITH MAX_USER_CONNECTIONS 1",
        Kind::Postgres => "ALTER ROLE test CONNECTION LIMIT 1",
    })
    .await;
    // MariaDB does not count connections from before the limit, and has room for one more.
    let _filler = match site.kind() {
        Kind::MariaDb => MySqlConnection::connect(&site.plain_url()).await.ok(),
        Kind::Postgres => None,
    };
    let connections = site.connections().await;
    let until = Instant::now() + TTL * 3 / 2;
    let others = join_all((0..8).map(async |n| {
        while Instant::now() < until {
            take_and_release(&locks, &format!("other/{n}")).await;
        }
    }));
    assert_kept_beside(guard, others).await;
    assert!(site.connections().await <= connections);
}

leases!(a_server_without_room_costs_no_lease);

/// A slow machine renews in time, and what is not renewed is lost before one ttl is over.
const TTL: Duration = Duration::from_secs(10);
