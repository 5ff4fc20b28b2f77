use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::{LockInfo, Record};
use polylock_core::engine::{Engine, LeaseId, Mutex, before};
use polylock_core::{Error, FencingToken, LeaseState, LockKey, Released, RenewalRequest, Renewer};
use tokio::time::Instant;

use super::clocks::Clocks;
use super::connection::SqliteTable;
use super::open_files;
use super::write_queue::{MAX_KEYS, Operands, WriteQueue};
use crate::config::SqliteConfig;
use crate::dialect::sqlite::{Durability, SqliteStatements};
use crate::error::{SqlCause, SqlFailure};
use crate::schema::Applied;
use crate::store::{AcquireResult, Availability, LeaseStore, LocalLeases};
use crate::table::{LoadedLocks, LockRows, ReadContext, SqlClaim, TokenRange};

/// The table in a SQLite file.
///
/// Renewals have their own connection, so that no lease depends on the queue of other requests. It does
/// not wait for the disk: a crash of the machine ends all leases, and the other connection has already
/// stored the tokens.
pub(crate) struct SqliteStore {
    write_queue: Arc<WriteQueue>,
    renewals: Arc<WriteQueue>,
    local: Arc<LocalLeases>,
}

impl SqliteStore {
    /// Opens the file and finds or makes the table.
    pub(crate) async fn open(
        config: &SqliteConfig,
        engine: &Engine,
    ) -> polylock_core::Result<(Self, Applied)> {
        let named = |failure: SqlFailure| Error::from(failure).with_backend(engine.backend());
        let store = Self::new(config, engine).map_err(|cause| named(cause.into()))?;
        let opened = store.write_queue.perform(Operands::Table, |_| ());
        opened.await.map_err(named)?;
        let applied = match store.write_queue.place.made_table.load(Ordering::Relaxed) {
            true => Applied::Created,
            false => Applied::Found,
        };
        Ok((store, applied))
    }

    fn new(config: &SqliteConfig, engine: &Engine) -> Result<Self, SqlCause> {
        let path = std::path::absolute(&config.path);
        let path = path.map_err(|e| super::db_error::opening(&config.path, Arc::new(e)))?;
        let statements = SqliteStatements::new(config.table.clone());
        let place = Arc::new(SqliteTable {
            path,
            creates_directory: config.creates_directory,
            statements,
            made_table: AtomicBool::new(false),
            seen: Mutex::default(),
        });
        let clocks = Clocks::new(engine.clone())?;
        let local = Arc::<LocalLeases>::default();
        let write_queue = |durability| {
            let queue = Arc::new(WriteQueue {
                place: Arc::clone(&place),
                engine: engine.clone(),
                clocks: clocks.clone(),
                local: Arc::clone(&local),
                durability,
                retention: config.retention,
                // Processes that take one new lock each share the purging among them.
                made: AtomicU32::new(engine.lease_id().as_bytes()[0].into()),
                timeout: config.busy_timeout,
                state: Mutex::default(),
            });
            open_files::enter_queue(&queue);
            queue
        };
        Ok(Self {
            write_queue: write_queue(Durability::Every),
            renewals: write_queue(Durability::Lazy),
            local,
        })
    }

    async fn change<T: Send + 'static>(
        &self,
        key: &LockKey,
        act: impl FnOnce(&mut LockRows, &ReadContext) -> T + Send + 'static,
    ) -> Result<T, SqlFailure> {
        let rows = Operands::Changed(key.clone());
        self.write_queue.perform(rows, on(key, act)).await
    }

    async fn read<T: Send + 'static>(
        &self,
        key: &LockKey,
        act: impl FnOnce(&mut LockRows, &ReadContext) -> T + Send + 'static,
    ) -> Result<T, SqlFailure> {
        let rows = Operands::Read(key.clone());
        self.write_queue.perform(rows, on(key, act)).await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.write_queue.place.path)
            .finish_non_exhaustive()
    }
}

fn on<T>(
    key: &LockKey,
    act: impl FnOnce(&mut LockRows, &ReadContext) -> T + Send + 'static,
) -> impl FnOnce(&mut LoadedLocks) -> T + Send + 'static {
    let key = key.clone();
    move |locks: &mut LoadedLocks| {
        let ctx = locks.ctx;
        act(locks.rows_of(&key), &ctx)
    }
}

#[async_trait]
impl Renewer for SqliteStore {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<polylock_core::Result<LeaseState>> {
        let timeout = due.iter().map(|due| due.timeout).min().unwrap_or_default();
        let until = Instant::now() + RenewalRequest::collect_for(due);
        let mut states = Vec::with_capacity(due.len());
        // One transaction at a time: a short lease does not wait behind thousands of long ones.
        for some in due.chunks(MAX_KEYS) {
            let renewals = some.iter().map(|request| {
                let due = request.clone();
                let renew = move |lock: &mut LockRows, ctx: &ReadContext| lock.renew(&due, ctx);
                let rows = Operands::Changed(request.key.clone());
                // A disk that hangs must leave time for an attempt on another connection.
                (request.timeout, rows, on(&request.key, renew))
            });
            let renewals: Vec<_> = renewals.collect();
            let Some(renewed) = before(until, self.renewals.perform_all(renewals)).await else {
                break;
            };
            let renewed = renewed.into_iter();
            states.extend(renewed.map(|state| state.map_err(SqlFailure::into)));
        }
        states.resize_with(due.len(), || Err(SqlFailure::silent(timeout, true).into()));
        states
    }

    fn adopts(&self) -> bool {
        true
    }
}

#[async_trait]
impl LeaseStore for SqliteStore {
    async fn take(&self, key: &LockKey, claim: SqlClaim) -> Result<AcquireResult, SqlFailure> {
        let take = move |lock: &mut LockRows, ctx: &ReadContext| {
            let taken = lock.take(&claim, ctx);
            if taken.is_err() {
                lock.enqueue(&claim, ctx);
            }
            taken
        };
        self.change(key, take).await
    }

    async fn look(&self, key: &LockKey, claim: &SqlClaim) -> Result<Availability, SqlFailure> {
        let claim = claim.clone();
        self.read(key, move |lock, ctx| lock.look(&claim, ctx))
            .await
    }

    fn outlasts_outages(&self) -> bool {
        false
    }

    fn has_queue(&self) -> bool {
        true
    }

    async fn dequeue(&self, key: &LockKey, ticket: LeaseId) -> Result<(), SqlFailure> {
        self.change(key, move |lock, ctx| {
            lock.dequeue(ticket, ctx);
        })
        .await
    }

    fn local(&self) -> &LocalLeases {
        &self.local
    }

    async fn release(&self, key: &LockKey, id: LeaseId) -> Result<Released, SqlFailure> {
        self.change(key, move |lock, ctx| lock.release(id, ctx))
            .await
    }

    async fn downgrade(&self, key: &LockKey, id: LeaseId) -> Result<LeaseState, SqlFailure> {
        self.change(key, move |lock, ctx| lock.downgrade(id, ctx))
            .await
    }

    async fn reserve(&self, key: &LockKey, id: LeaseId) -> Result<Option<TokenRange>, SqlFailure> {
        self.change(key, move |lock, ctx| lock.reserve(id, ctx))
            .await
    }

    async fn adopt(
        &self,
        id: LeaseId,
        renewal: &RenewalRequest,
    ) -> Result<Option<FencingToken>, SqlFailure> {
        let due = renewal.clone();
        let adopt = move |lock: &mut LockRows, ctx: &ReadContext| lock.adopt(id, &due, ctx);
        let adopted = self.change(&renewal.key, adopt).await?;
        Ok(adopted.map(FencingToken::new))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, SqlFailure> {
        self.write_queue
            .perform(Operands::Listed(prefix.to_owned()), |locks| locks.infos())
            .await
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>, SqlFailure> {
        let name = key.clone();
        self.read(key, move |lock, ctx| lock.info(&name, ctx)).await
    }

    async fn break_all(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>, SqlFailure> {
        let (name, reason) = (key.clone(), reason.to_owned());
        let take_away = move |lock: &mut LockRows, ctx: &ReadContext| {
            let broken = lock.info(&name, ctx);
            lock.break_all(&reason, ctx);
            broken
        };
        self.change(key, take_away).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>, SqlFailure> {
        self.read(key, |lock, ctx| lock.record(ctx).cloned()).await
    }

    async fn write_record(
        &self,
        key: &LockKey,
        record: &Record,
        keep: Duration,
    ) -> Result<bool, SqlFailure> {
        let record = record.clone();
        let write =
            move |lock: &mut LockRows, ctx: &ReadContext| lock.write_record(&record, keep, ctx);
        self.change(key, write).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use sqlx::sqlite::SqliteConnectOptions;
    use sqlx::{ConnectOptions as _, Executor as _};

    use super::super::write_queue;
    use super::*;
    use crate::table::testing::{EXCLUSIVE, claim, id};

    #[tokio::test]
    async fn a_renewal_waits_behind_one_transaction_of_a_large_batch() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path().join("db"));
        let engine = Engine::of_this_process("sqlite");
        let (store, _) = SqliteStore::open(&config, &engine).await.unwrap();
        let due = (0..3 * MAX_KEYS).map(|n| {
            let key = LockKey::new(format!("job {n}")).unwrap();
            RenewalRequest::new(key, id(1), Duration::from_secs(30))
        });
        let due: Vec<_> = due.collect();
        store.renew(&due[..1]).await;
        let hanging = write_queue::tests::hang(&store.renewals).await;
        let mut renewing = store.renew(&due);
        tokio::select! {
            biased;
            _ = &mut renewing => panic!("its connection hangs"),
            () = std::future::ready(()) => {}
        }
        assert!(write_queue::tests::waiting(&store.renewals) <= MAX_KEYS);
        drop(hanging);
        assert_eq!(renewing.await.len(), due.len());
    }

    /// Without these results, the caller would abandon the whole batch at each attempt, until all of its locks are lost.
    #[tokio::test]
    async fn a_batch_that_takes_too_long_reports_what_is_renewed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let engine = Engine::of_this_process("sqlite");
        let config = SqliteConfig::new(&path);
        let (store, _) = SqliteStore::open(&config, &engine).await.unwrap();
        let first = (0..MAX_KEYS).map(|n| format!("job {n}"));
        let due = first.chain(["slow".to_owned()]).map(|name| {
            let key = LockKey::new(name).unwrap();
            RenewalRequest::new(key, id(1), Duration::from_secs(30))
        });
        let due: Vec<_> = due.collect();
        for held in [&due[0], &due[MAX_KEYS]] {
            let taken = store.take(&held.key, claim(1, EXCLUSIVE)).await.unwrap();
            taken.unwrap();
        }
        let mut raw = SqliteConnectOptions::new()
            .filename(&path)
            .connect()
            .await
            .unwrap();
        // The connection for renewals is opened by the first one.
        let renewed = store.renew(&due[..1]).await;
        assert_eq!(*renewed[0].as_ref().unwrap(), LeaseState::Held);
        let slow = "CREATE VIEW slow_view AS WITH RECURSIVE n(x) AS \
                    (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 30000000) SELECT x FROM n; \
                    CREATE TRIGGER slow AFTER UPDATE ON polylock_locks \
                    WHEN NEW.key = CAST('slow' AS BLOB) BEGIN SELECT max(x) FROM slow_view; END";
        raw.execute(slow).await.unwrap();
        let until = tokio::time::Instant::now() + due[0].timeout;
        let states = before(until, store.renew(&due)).await;
        let states = states.expect("the caller has given up");
        assert_eq!(states.len(), due.len());
        assert_eq!(*states[0].as_ref().unwrap(), LeaseState::Held);
        let slow = states[MAX_KEYS].as_ref().unwrap_err();
        assert!(slow.is_outcome_unknown(), "{slow}");
    }

    #[tokio::test]
    async fn a_renewal_that_hangs_leaves_time_for_one_on_another_connection() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path().join("db"));
        let config = config.with_busy_timeout(Duration::from_secs(60)).unwrap();
        let engine = Engine::of_this_process("sqlite");
        let (store, _) = SqliteStore::open(&config, &engine).await.unwrap();
        let key = LockKey::new("job").unwrap();
        let taken = store.take(&key, claim(1, EXCLUSIVE)).await.unwrap();
        taken.unwrap();
        let mut due = RenewalRequest::new(key, id(1), Duration::from_secs(30));
        let renewed = store.renew(&[due.clone()]).await.remove(0);
        assert_eq!(renewed.unwrap(), LeaseState::Held);
        let hanging = write_queue::tests::hang(&store.renewals).await;
        // Also one that shares its transaction with others, which have more time.
        let timeouts = [60_000, 100, 30_000].map(Duration::from_millis);
        let nothing = |_: &mut LoadedLocks| ();
        let together =
            timeouts.map(|timeout| (timeout, Operands::Changed(due.key.clone()), nothing));
        let began = Instant::now();
        for failed in store.renewals.perform_all(together).await {
            assert!(failed.is_err(), "its connection hangs");
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(30), "given up after {took:?}");
        drop(hanging);
        // The next connection.
        due.timeout = Duration::from_secs(30);
        let renewed = store.renew(&[due.clone()]).await.remove(0);
        assert_eq!(renewed.unwrap(), LeaseState::Held);
        let hanging = write_queue::tests::hang(&store.renewals).await;
        due.timeout = Duration::from_millis(100);
        let began = Instant::now();
        let failed = store.renew(&[due.clone()]).await.remove(0);
        let took = began.elapsed();
        failed.expect_err("its connection hangs");
        assert!(took < Duration::from_secs(30), "given up after {took:?}");
        drop(hanging);
        due.timeout = Duration::from_secs(30);
        let renewed = store.renew(&[due]).await.remove(0);
        assert_eq!(renewed.unwrap(), LeaseState::Held);
    }
}
