//! The effect of waiters on other clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_testkit::locks::{acquire, release, waiting};
use lock_testkit::servers::MariaDbServer;
use polylock_core::{ErrorKind, Mode, Result, Wait};
use polylock_sql::transaction::{Connection, TransactionLocks};
use sqlx::{Connection as _, Database, MySqlConnection, PgConnection};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::server::renewal::Other;
use crate::server::support::{
    Kind, SOON, Site, leases, on, request, take, take_and_release, until,
};

/// Holds these keys in a transaction, until [`release`](Held::release) is called.
async fn hold_in<D>(mut raw: D::Connection, site: Site, keys: Vec<String>) -> Result<Held>
where
    D: Database<Connection: Connection<Database = D>>,
{
    let (release, released) = oneshot::channel::<()>();
    let (taken, is_taken) = oneshot::channel();
    let task = tokio::spawn(async move {
        let locks = TransactionLocks::new().with_table(&site.table);
        let locks = locks.expect("a name");
        let mut transaction = raw.begin().await.expect("it begins");
        let mut all = Ok(());
        for key in &keys {
            let taken = locks.acquire_in(&mut *transaction, key.as_str()).await;
            all = all.and_then(|()| taken.map(drop));
        }
        taken.send(all).expect("the test waits for it");
        // Without a word if not all are taken.
        drop(released.await);
        transaction.rollback().await.expect("it ends");
    });
    is_taken.await.expect("no panic")?;
    Ok(Held { release, task })
}

pub(super) struct Held {
    release: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Held {
    pub(super) async fn release(self) {
        self.release.send(()).expect("it waits");
        self.task.await.expect("it ends");
    }
}

/// On a connection of its own.
pub(super) async fn hold(site: &Site, keys: Vec<String>) -> Result<Held> {
    let url = site.plain_url();
    match site.kind() {
        Kind::MariaDb => {
            let mut raw = MySqlConnection::connect(&url).await.expect("it connects");
            // At a higher level, a page split turns row locks into gap locks, which block the
            // insert of other keys.
            let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
            let set = sqlx::raw_sql(level).execute(&mut raw).await;
            set.expect("it is set");
            hold_in::<sqlx::MySql>(raw, site.clone(), keys).await
        }
        Kind::Postgres => {
            let raw = PgConnection::connect(&url).await.expect("it connects");
            hold_in::<sqlx::Postgres>(raw, site.clone(), keys).await
        }
    }
}

/// Both for keys that were used before and for those whose rows the transaction has made.
async fn waiters_for_a_transaction_keep_no_client_from_a_free_lock(site: Site) {
    let locks = Arc::new(site.open().await);
    let old: Vec<_> = (0..WAITERS / 2).map(|n| format!("old/{n}")).collect();
    for key in &old {
        take_and_release(&locks, key).await;
    }
    let new = (0..WAITERS / 2).map(|n| format!("new/{n}"));
    let keys: Vec<_> = old.into_iter().chain(new).collect();
    let held = hold(&site, keys.clone()).await.expect("they are free");
    let wait = |key: &String| waiting(&locks, request(key).with_wait(Wait::AtMost(WAIT)));
    let waiting: Vec<_> = keys.iter().map(wait).collect();
    until("they wait", async || site.connections().await > WAITERS).await;
    let mut times = Vec::new();
    let began = Instant::now();
    while began.elapsed() < WAIT / 2 {
        let asked = Instant::now();
        let guard = take(&locks, &format!("free/{}", times.len())).await;
        times.push(asked.elapsed());
        guard.release().await.expect("it is released");
    }
    for waiter in waiting {
        let error = waiter.await.expect("no panic").expect_err("it is held");
        assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    }
    held.release().await;
    times.sort_unstable();
    assert!(
        times[times.len() / 2] < FREE_WITHIN,
        "a free lock took {times:?}"
    );
}

on!(
    waiters_for_a_transaction_keep_no_client_from_a_free_lock: postgres_row, mariadb_row
);

/// More keys are waited for than there are connections.
async fn waiters_for_held_locks_keep_no_client_from_a_free_lock(site: Site) {
    let holder = site.open().await;
    let mut held = Vec::new();
    for n in 0..3 * FEW {
        held.push(take(&holder, &format!("held/{n}")).await);
    }
    let few = usize::try_from(FEW).expect("it is small");
    let locks = Arc::new(site.clone().with_connections(few).open().await);
    let long = |n| request(&format!("held/{n}")).with_wait(Wait::AtMost(SOON * 6));
    let waiting: Vec<_> = (0..held.len()).map(|n| waiting(&locks, long(n))).collect();
    until("they wait", async || site.waiters().await >= FEW - 1).await;
    let mut times = Vec::new();
    for n in 0..20 {
        let asked = Instant::now();
        take_and_release(&locks, &format!("free/{n}")).await;
        times.push(asked.elapsed());
    }
    times.sort_unstable();
    assert!(
        times[times.len() / 2] < FREE_WITHIN,
        "a free lock took {times:?}"
    );
    for guard in held {
        guard.release().await.expect("it is released");
    }
    for waiter in waiting {
        let guard = waiter.await.expect("no panic").expect("it is granted");
        guard.release().await.expect("it is released");
    }
}

on!(
    waiters_for_held_locks_keep_no_client_from_a_free_lock: postgres_advisory, mariadb_advisory
);

async fn a_waiter_gets_what_a_transaction_releases(site: Site) {
    let locks = site.open().await;
    let held = hold(&site, vec!["job".to_owned()]).await;
    let held = held.expect("it is free");
    let waiting = tokio::spawn(async move { take(&locks, "job").await });
    until("it waits", async || site.waiters().await > 0).await;
    held.release().await;
    let released = Instant::now();
    let guard = waiting.await.expect("it is granted");
    assert!(
        released.elapsed() < SOON,
        "granted after {:?}",
        released.elapsed()
    );
    guard.release().await.expect("it is released");
}

on!(a_waiter_gets_what_a_transaction_releases: postgres_row, mariadb_row);

/// The rows of transactions come next to those of leases.
async fn a_transaction_keeps_no_lease_from_its_release(site: Site) {
    let locks = site.open().await;
    let guard = acquire(&locks, &request("config").with_mode(Mode::Shared)).await;
    let held = hold(&site, vec!["job".to_owned()]).await;
    let held = held.expect("it is free");
    let released = tokio::time::timeout(SOON, guard.release()).await;
    let released = released.expect("it waits for the transaction");
    released.expect("it is released");
    held.release().await;
}

leases!(a_transaction_keeps_no_lease_from_its_release);

/// Holders are recorded in the table, which an index may be built on. The session holds both locks.
async fn a_locked_table_costs_no_lock_beside_the_one_released(site: Site) {
    let locks = site.open().await;
    let (first, second) = (take(&locks, "first").await, take(&locks, "second").await);
    let session = site.holder("first").await;
    assert_eq!(site.holder("second").await, session);
    let table = &site.table;
    // For longer than a session without probes is trusted.
    let (lock, is_locked) = match site.kind() {
        Kind::MariaDb => (
            format!("LOCK TABLES {table} READ; SELECT SLEEP(3), '{table}'; UNLOCK TABLES"),
            format!(
                "SELECT count(*) FROM {}
                 WHERE state = 'User sleep' AND info LIKE '%{table}%'",
                MariaDbServer::PROCESS_LIST
            ),
        ),
        Kind::Postgres => (
            format!("BEGIN; LOCK TABLE {table} IN SHARE MODE; SELECT pg_sleep(3); COMMIT"),
            format!(
                "SELECT count(*) FROM pg_locks
                 WHERE relation = '{table}'::regclass AND mode = 'ShareLock' AND granted"
            ),
        ),
    };
    let locked = tokio::spawn({
        let site = site.clone();
        async move { drop(site.sql(lock).await) }
    });
    until("the table is locked", async || {
        site.number(&is_locked).await > 0
    })
    .await;
    release(second).await;
    let still_locked = site.number(&is_locked).await > 0;
    assert!(still_locked, "the release has waited for the table");
    locked.await.expect("no panic");
    assert!(first.is_held(), "{:?}", first.lost().reason());
    first.release().await.expect("it is released");
}

on!(a_locked_table_costs_no_lock_beside_the_one_released: postgres_advisory, mariadb_advisory);

/// Two clients that want the lock alone all the time keep no shared request out.
async fn a_shared_request_is_served_beside_steady_exclusive_ones(site: Site) {
    let is_over = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicU32::new(0));
    let mut clients = Vec::new();
    for _ in 0..2 {
        let locks = site.open().await;
        let (is_over, served) = (Arc::clone(&is_over), Arc::clone(&served));
        clients.push(tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                take_and_release(&locks, "job").await;
                served.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    until("they are served", async || {
        served.load(Ordering::Relaxed) > 20
    })
    .await;
    let locks = site.open().await;
    let shared = request("job").with_mode(Mode::Shared);
    let shared = shared.with_wait(Wait::AtMost(SOON * 6));
    for _ in 0..5 {
        release(acquire(&locks, &shared).await).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("it is served as well");
    }
}

leases!(a_shared_request_is_served_beside_steady_exclusive_ones);

/// Enough to need ten times the connections that a process has beside its sessions.
const WAITERS: u64 = 40;

const WAIT: Duration = Duration::from_secs(8);

/// Fewer connections than there are waiters.
const FEW: u64 = 4;

/// A few round trips and a new session on a busy machine.
const FREE_WITHIN: Duration = Duration::from_secs(1);

/// A dump or a change of the table locks it for longer than a statement may wait.
async fn a_table_that_is_locked_for_a_while_ends_no_wait(site: Site) {
    let impatient = site.clone().with("timeout=1s");
    let (holder, waiter) = (site.open().await, Arc::new(impatient.open().await));
    let lease = request("job").with_ttl(Duration::from_secs(60));
    let guard = acquire(&holder, &lease).await;
    let next = waiting(&waiter, request("job").with_wait(Wait::AtMost(SOON * 4)));
    site.until_it_waits("job").await;
    let mut other = Other::open(&site).await;
    let table = &site.table;
    other
        .run(match site.kind() {
            Kind::MariaDb => format!("LOCK TABLES {table} WRITE"),
            Kind::Postgres => format!("BEGIN; LOCK TABLE {table}"),
        })
        .await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!next.is_finished(), "{:?}", next.await);
    drop(other);
    release(guard).await;
    let next = next.await.expect("no panic").expect("it waits on");
    release(next).await;
}

leases!(a_table_that_is_locked_for_a_while_ends_no_wait);
