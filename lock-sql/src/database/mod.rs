//! `mode=lease` on a server: leases in rows of a table, by statements that are each a transaction.
//!
//! Acquiring an exclusive lock, releasing it, and renewing many leases is one statement each. Other
//! operations read the rows of a key, apply the rules of [`table`](crate::table), and write the rows
//! back if they are unchanged. No transaction is open in between, so a stopped process blocks no one.

pub(crate) mod codec;
mod in_flight;
mod key_mutexes;
#[cfg(feature = "postgres")]
mod listen;
mod release;
mod renew;
mod row;
mod shared_leases;
pub(crate) mod statements;
mod take;
#[cfg(all(test, feature = "mysql", feature = "postgres"))]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::{LockInfo, Record};
use polylock_core::engine::{Engine, LeaseId, Mutex};
use polylock_core::{FencingToken, LeaseState, LockKey, Released, RenewalRequest, Renewer};

use self::codec::whole_micros;
use self::in_flight::InFlight;
use self::key_mutexes::KeyMutexes;
#[cfg(feature = "postgres")]
use self::listen::Listener;
use self::shared_leases::SharedLeases;
use self::statements::{FURTHER_TOKENS, LeaseStatements};
use crate::config::{POOL_LOCK_WAITS, RENEWERS, ServerKind};
use crate::dialect::{self, range};
use crate::error::SqlFailure;
use crate::pool::Pool;
use crate::purge::Purge;
use crate::records::Records;
use crate::store::{AcquireResult, Availability, LeaseStore, LocalLeases, ReleaseDetection};
use crate::table::{LockRows, ReadContext, SqlClaim, TokenRange, unreadable};
use crate::wire::{ConnectTarget, QueryResult, SqlValue};

/// The table on a server.
///
/// Renewals have their own connections, so that no lease depends on the queue of other requests. If none can
/// be opened for them, they borrow one of the others.
pub(crate) struct DatabaseStore {
    engine: Engine,
    statements: Arc<LeaseStatements>,
    pool: Arc<Pool>,
    renewals: Arc<Pool>,
    /// For renewals that wait for a row, with the keys of those rows.
    lock_waits: Arc<Pool>,
    waiting_keys: Arc<Mutex<BTreeSet<LockKey>>>,
    /// The name of the table, for messages and topics.
    table: String,
    timeout: Duration,
    local: Arc<LocalLeases>,
    shared_leases: SharedLeases,
    key_mutexes: KeyMutexes,
    in_flight: Arc<InFlight>,
    pub(crate) purge: Arc<Purge>,
    records: Records,
    #[cfg(feature = "postgres")]
    listener: Option<Arc<Listener>>,
}

impl DatabaseStore {
    pub(crate) fn new(engine: &Engine, target: &Arc<ConnectTarget>) -> Self {
        let config = &target.config;
        let table = config.table_sql();
        let notifies = config.server.is_postgres() && config.notify;
        let statements = Arc::new(match config.server {
            ServerKind::MySql => dialect::mysql::lease::statements(&table),
            ServerKind::Postgres => dialect::postgres::lease::statements(&table, notifies),
        });
        let pool = |size, timeout| Pool::new(engine, target, size, timeout);
        let local = Arc::<LocalLeases>::default();
        let all = Pool::with_leases(engine, target, config.connections, config.timeout, &local);
        let lock_waits = match config.pool {
            Some(_) => POOL_LOCK_WAITS,
            None => LOCK_WAITS,
        };
        let table = config.table.as_str().to_owned();
        let purge = Purge::new(engine, &all, config);
        Self {
            engine: engine.clone(),
            renewals: all.borrowing(RENEWERS, config.timeout.min(RENEWAL)),
            lock_waits: pool(lock_waits, config.timeout.min(LOCK_WAIT)),
            waiting_keys: Arc::default(),
            timeout: config.timeout,
            shared_leases: SharedLeases::default(),
            key_mutexes: KeyMutexes::default(),
            in_flight: InFlight::new(engine, config.timeout),
            records: Records::new(&purge, &all, config),
            purge,
            #[cfg(feature = "postgres")]
            listener: notifies.then(|| Listener::new(engine, target, &all, &local, &table)),
            statements,
            pool: all,
            table,
            local,
        }
    }

    /// The payload for the waiters of a lock, where there are notifications.
    fn topic(&self, key: &LockKey) -> Option<SqlValue> {
        #[cfg(feature = "postgres")]
        if self.listener.is_some() {
            return Some(SqlValue::from(listen::topic(&self.table, key)));
        }
        let _ = key;
        None
    }
}

/// Max time of a statement that renews leases: by then the next attempt is due.
const RENEWAL: Duration = Duration::from_secs(5);

/// Max renewals that wait for locked rows, and for how long: the next attempt follows.
const LOCK_WAITS: usize = 4;
const LOCK_WAIT: Duration = Duration::from_secs(2);

#[async_trait]
impl Renewer for DatabaseStore {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<polylock_core::Result<LeaseState>> {
        let states = self.renew_all(due).await.into_iter();
        states
            .map(|state| state.map_err(SqlFailure::into))
            .collect()
    }

    fn adopts(&self) -> bool {
        true
    }
}

#[async_trait]
impl LeaseStore for DatabaseStore {
    async fn take(&self, key: &LockKey, claim: SqlClaim) -> Result<AcquireResult, SqlFailure> {
        self.take_lock(key, &claim).await
    }

    async fn look(&self, key: &LockKey, claim: &SqlClaim) -> Result<Availability, SqlFailure> {
        #[cfg(feature = "postgres")]
        self.request_notification(key).await?;
        let Some(stored) = self.load(key).await? else {
            return Ok(Ok(()));
        };
        let seen = stored.lock.look(claim, &stored.ctx);
        Ok(seen.map_err(|refusal| self.here(refusal, claim.mode, &stored)))
    }

    fn has_queue(&self) -> bool {
        #[cfg(feature = "postgres")]
        if let Some(listener) = &self.listener {
            return listener.is_out_of_use();
        }
        true
    }

    async fn dequeue(&self, key: &LockKey, ticket: LeaseId) -> Result<(), SqlFailure> {
        // Otherwise the statement that enters the queue may run after this one.
        self.in_flight.settle(ticket, self.timeout).await;
        let leave = &self.statements.leave_queue;
        self.pool.run(leave, on(key, ticket)).await?;
        Ok(())
    }

    fn local(&self) -> &LocalLeases {
        &self.local
    }

    fn attend_holders(&self) {
        #[cfg(feature = "postgres")]
        if let Some(listener) = &self.listener {
            listener.start();
        }
    }

    fn release_detection(&self) -> ReleaseDetection {
        #[cfg(feature = "postgres")]
        if self.listener.as_ref().is_some_and(|it| it.is_receiving()) {
            return ReleaseDetection::Notified;
        }
        ReleaseDetection::Polled
    }

    async fn release(&self, key: &LockKey, id: LeaseId) -> Result<Released, SqlFailure> {
        let is_settled = self.in_flight.settle(id, self.timeout).await;
        match self.release_or_retry(key, id).await? {
            Released::Clean => {
                self.in_flight.forget(id);
                Ok(Released::Clean)
            }
            // The statement that acquires the lock may run after this one.
            Released::AlreadyLost if !is_settled => Err(SqlFailure::silent(self.timeout, true)),
            released => Ok(released),
        }
    }

    async fn downgrade(&self, key: &LockKey, id: LeaseId) -> Result<LeaseState, SqlFailure> {
        let downgrade = |lock: &mut LockRows, ctx: &ReadContext| lock.downgrade(id, ctx);
        let state = self.change(key, downgrade).await?;
        if state == LeaseState::Held {
            self.shared_leases.note(id, self.engine.now());
        }
        Ok(state)
    }

    async fn reserve(&self, key: &LockKey, id: LeaseId) -> Result<Option<TokenRange>, SqlFailure> {
        let reserve = &self.statements.reserve;
        Ok(drawn(&self.pool.run(reserve, on(key, id)).await?))
    }

    async fn adopt(
        &self,
        id: LeaseId,
        renewal: &RenewalRequest,
    ) -> Result<Option<FencingToken>, SqlFailure> {
        let mut values = on(&renewal.key, id);
        values.push(SqlValue::from(&renewal.id.as_bytes()[..]));
        values.push(SqlValue::from(whole_micros(renewal.ttl)));
        let adopt = &self.statements.adopt;
        let answer = self.run_for(renewal.id, adopt, values).await?;
        Ok(last_drawn(&answer).map(FencingToken::new))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, SqlFailure> {
        let (from, to) = range(prefix);
        let range = vec![SqlValue::from(from), SqlValue::from(to)];
        let answer = self.pool.ask(&self.statements.list, range).await?;
        let mut infos = Vec::new();
        for (key, stored) in codec::read(&answer.rows) {
            match stored {
                Some(stored) => infos.extend(stored.lock.info(&key, &stored.ctx)),
                None => infos.push(unreadable(key)),
            }
        }
        Ok(infos)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>, SqlFailure> {
        let found = self.load(key).await?;
        Ok(found.and_then(|stored| stored.lock.info(key, &stored.ctx)))
    }

    async fn break_all(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>, SqlFailure> {
        // PostgreSQL texts cannot contain it.
        let reason = reason.replace('\0', " ");
        let take_away = |lock: &mut LockRows, ctx: &ReadContext| {
            let broken = lock.info(key, ctx);
            lock.break_all(&reason, ctx);
            broken
        };
        let broken = self.change(key, take_away).await?;
        // Holders that do not listen notice it at a renewal.
        #[cfg(feature = "postgres")]
        if let (Some(_), Some(listener)) = (&broken, &self.listener) {
            listener.notify_broken(key).await;
        }
        Ok(broken)
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>, SqlFailure> {
        self.records.read(key).await
    }

    async fn write_record(
        &self,
        key: &LockKey,
        record: &Record,
        keep: Duration,
    ) -> Result<bool, SqlFailure> {
        self.records.write(key, record, keep).await
    }
}

fn on(key: &LockKey, id: LeaseId) -> Vec<SqlValue> {
    vec![
        SqlValue::from(key.as_bytes()),
        SqlValue::from(&id.as_bytes()[..]),
    ]
}

/// The last token that a statement drew: PostgreSQL returns a row, MySQL a number.
fn last_drawn(answer: &QueryResult) -> Option<u64> {
    match answer.int(0) {
        Some(last) => u64::try_from(last).ok(),
        None => (answer.affected > 0).then_some(answer.last_id),
    }
}

/// The tokens of a statement that draws as many as an exclusive holder gets.
fn drawn(answer: &QueryResult) -> Option<TokenRange> {
    let last = last_drawn(answer)?;
    Some(TokenRange {
        next: last.checked_sub(FURTHER_TOKENS)?,
        last,
    })
}

impl fmt::Debug for DatabaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseStore")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
