//! Deletes unused rows of all kinds, a few at a time.

#[cfg(all(test, feature = "mysql", feature = "postgres"))]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::LockKey;
use polylock_core::engine::{Engine, Moment};

use crate::config::{ServerKind, SqlConfig};
use crate::database::codec::whole_micros;
use crate::database::statements::Many;
use crate::dialect;
use crate::error::SqlFailure;
use crate::mutex::Mutex;
use crate::pool::Pool;
use crate::wire::{ErrorClass, Sql, SqlValue};

/// The statements that find and delete unused rows, for each [`RowKind`].
pub(crate) struct PurgeTexts {
    /// Read [`PURGE_ROWS`] rows after a key.
    ///
    /// - Leases: arguments key and retention; columns key, whether the lease has been free for the
    ///   retention ([`IS_IDLE`]), its last token, and its version.
    /// - Rows of `mode=row` and of transactions: arguments key and retention; columns key, and whether the
    ///   row was created before the retention. A row does not show when it was last locked.
    /// - Records: argument key; columns key, and whether the record has ended.
    pub(crate) scan: [Arc<Sql>; 3],
    /// Raises the min token of later leases.
    pub(crate) raise: Arc<Sql>,
    /// Delete unused rows, if they are still unused.
    ///
    /// - Leases: arguments key, retention, floor and the version from the scan. The statement waits for
    ///   rows that are locked.
    /// - Rows of `mode=row` and of transactions: arguments key and retention. The statement skips locked
    ///   rows.
    /// - Records: argument key. The statement waits for rows that are locked.
    pub(crate) delete: [Many; 3],
}

/// The text of [`PurgeTexts::raise`], the same for all servers.
pub(crate) const RAISE: &str = "
UPDATE %table% SET last_token = GREATEST(last_token, {1}) WHERE kind = 0 AND lock_key = ''";

/// Whether the first row of a lease is unused, for [`PurgeTexts::scan`] on all servers.
///
/// `sharers` still counts holders that died, so the slots are read where it is not 0. The delete does not
/// read them again, but requires the version of the scan: each statement that adds or renews a shared
/// holder changes the version of the first row in the same transaction.
pub(crate) const IS_IDLE: &str = "
%unheld% AND l.changed_at <= %moment% - {2} AND (l.sharers = 0 OR (
    SELECT count(*) FROM %table% s
    WHERE s.kind = 1 AND s.lock_key = l.lock_key AND s.slot > 0
        AND s.id IS NOT NULL AND s.expires_at > %moment%) = 0)";

/// The rows of one kind, by their place in [`PurgeTexts`].
#[derive(Clone, Copy)]
enum RowKind {
    Leases,
    Rows,
    Records,
}

/// Each time this process has added so many rows, it checks [`PURGE_ROWS`] of each kind: the whole table
/// is checked while it grows by an eighth, and no index has to mark idle rows.
///
/// No token is drawn twice. The largest token of the leases to be deleted is first stored as the min for
/// all later leases. The rows are deleted once every statement that may have missed that has ended. The
/// tokens of row locks come from elsewhere. The row of a fence stays, because a smaller token may arrive
/// at any later time.
pub(crate) struct Purge {
    engine: Engine,
    texts: PurgeTexts,
    pool: Arc<Pool>,
    retention: Duration,
    state: Mutex<PurgeState>,
}

#[derive(Default)]
struct PurgeState {
    /// Rows that were added since the last round.
    grown: u32,
    /// Whether a round is running, or no further round is allowed.
    is_busy: bool,
    /// The last key of each [`RowKind`] that was looked at.
    passed: [Vec<u8>; 3],
    doomed: VecDeque<PendingDelete>,
}

/// Leases to be deleted, if they are still idle then.
struct PendingDelete {
    rows: Vec<IdleRow>,
    /// The min token of all later leases.
    floor: u64,
    since: Moment,
}

/// A row that was idle at the scan.
struct IdleRow {
    key: Vec<u8>,
    /// Of leases only, as is the version.
    last_token: i64,
    version: i64,
}

impl Purge {
    pub(crate) fn new(engine: &Engine, pool: &Arc<Pool>, config: &SqlConfig) -> Arc<Self> {
        let table = config.table_sql();
        let texts = match config.server {
            ServerKind::MySql => dialect::mysql::purge::texts(&table),
            ServerKind::Postgres => dialect::postgres::purge::texts(&table),
        };
        let state = PurgeState {
            // Processes that add one row each share the purging among them.
            grown: u32::from(engine.lease_id().as_bytes()[0]) % EVERY,
            ..PurgeState::default()
        };
        Arc::new(Self {
            engine: engine.clone(),
            texts,
            pool: Arc::clone(pool),
            retention: config.retention,
            state: Mutex::new(state),
        })
    }

    /// The table has, or may have, a new row of this key.
    pub(crate) fn grown(self: &Arc<Self>, key: &LockKey) {
        {
            let mut state = self.state.lock();
            state.grown += 1;
            if state.is_busy || state.grown < EVERY {
                return;
            }
            state.grown = 0;
            state.is_busy = true;
            // Processes that add one row each begin at the first key, from which numbers and dates have
            // grown, or anywhere.
            let is_at_the_start = state.passed.iter().all(Vec::is_empty);
            if is_at_the_start && self.engine.lease_id().as_bytes()[0] % 2 == 1 {
                state.passed = [(); 3].map(|()| key.as_bytes().to_vec());
            }
        }
        let purge = Arc::clone(self);
        self.engine.spawn(async move {
            let done = purge.round().await;
            let denied = done.is_err_and(|failure| is_denied(&failure));
            purge.state.lock().is_busy = denied;
        });
    }

    async fn round(&self) -> Result<(), SqlFailure> {
        let now = self.engine.now();
        let is_settled = |first: &mut PendingDelete| now.since(first.since) >= SETTLED;
        let due = self.state.lock().doomed.pop_front_if(is_settled);
        if let Some(doomed) = due {
            self.delete_leases(doomed).await?;
        }
        if self.state.lock().doomed.len() < MAX_PENDING_DELETES {
            self.doom_leases().await?;
        }
        let row_age = self.retention.max(MIN_ROW_AGE);
        self.delete_unused(RowKind::Rows, Some(row_age)).await?;
        self.delete_unused(RowKind::Records, None).await
    }

    /// Selects idle leases, and prevents their tokens from being drawn again.
    async fn doom_leases(&self) -> Result<(), SqlFailure> {
        let (rows, passed) = self.scan(RowKind::Leases, Some(self.retention)).await?;
        let floor = rows.iter().map(|row| row.last_token).max();
        if let Some(floor) = floor {
            let values = vec![SqlValue::from(floor)];
            let raised = self.pool.run(&self.texts.raise, values).await?;
            // Without the row that stores the min token, nothing may be deleted.
            if raised.affected > 0 {
                self.state.lock().doomed.push_back(PendingDelete {
                    rows,
                    floor: u64::try_from(floor).unwrap_or_default(),
                    since: self.engine.now(),
                });
            }
        }
        self.state.lock().passed[RowKind::Leases as usize] = passed;
        Ok(())
    }

    async fn delete_leases(&self, doomed: PendingDelete) -> Result<(), SqlFailure> {
        let retention = whole_micros(self.retention);
        let values = |row: IdleRow| {
            vec![
                SqlValue::from(row.key),
                SqlValue::from(retention),
                SqlValue::from(doomed.floor),
                SqlValue::from(row.version),
            ]
        };
        let rows: Vec<_> = doomed.rows.into_iter().map(values).collect();
        let (sql, values) = self.texts.delete[RowKind::Leases as usize].with(&rows);
        let deleted = self.pool.run(&sql, values).await?;
        tracing::debug!(rows = deleted.affected, "unused rows of leases are deleted");
        Ok(())
    }

    /// Deletes the next unused rows of a kind. Rows of row locks are deleted if they were created longer ago
    /// than `retention` and no transaction has locked them.
    ///
    /// A holder keeps its row locked, so it is not deleted. A waiter whose row is deleted before its
    /// grant finds none, and creates it again. A request without a wait that meets the deletion is
    /// refused, because it cannot tell the deletion from another holder. This can happen once in
    /// `retention` for a key, for the time of one statement.
    async fn delete_unused(
        &self,
        kind: RowKind,
        retention: Option<Duration>,
    ) -> Result<(), SqlFailure> {
        let (rows, passed) = self.scan(kind, retention).await?;
        if !rows.is_empty() {
            let values = |row: IdleRow| {
                let retention = retention.map(|retention| SqlValue::from(whole_micros(retention)));
                let key = SqlValue::from(row.key);
                [key].into_iter().chain(retention).collect()
            };
            let rows: Vec<Vec<SqlValue>> = rows.into_iter().map(values).collect();
            let (sql, values) = self.texts.delete[kind as usize].with(&rows);
            self.pool.run(&sql, values).await?;
        }
        self.state.lock().passed[kind as usize] = passed;
        Ok(())
    }

    /// Looks at the next rows of a kind, and locks none. Returns the idle ones, and the last key that it has
    /// looked at; that is empty at the end of the table.
    async fn scan(
        &self,
        kind: RowKind,
        retention: Option<Duration>,
    ) -> Result<(Vec<IdleRow>, Vec<u8>), SqlFailure> {
        let after = self.state.lock().passed[kind as usize].clone();
        let mut values = vec![SqlValue::from(after)];
        values.extend(retention.map(|retention| SqlValue::from(whole_micros(retention))));
        let scan = &self.texts.scan[kind as usize];
        let rows = self.pool.run(scan, values).await?.rows;
        let key = |row: &Vec<SqlValue>| row.first().and_then(SqlValue::bytes).map(<[u8]>::to_vec);
        let number = |row: &Vec<SqlValue>, at: usize| row.get(at).and_then(SqlValue::int);
        let idle = rows.iter().filter(|row| number(row, 1) == Some(1));
        let idle = idle.filter_map(|row| {
            Some(IdleRow {
                key: key(row)?,
                last_token: number(row, 2).unwrap_or_default(),
                version: number(row, 3).unwrap_or_default(),
            })
        });
        let passed = match rows.last() {
            Some(last) if rows.len() == PURGE_ROWS => key(last),
            _ => None,
        };
        Ok((idle.collect(), passed.unwrap_or_default()))
    }
}

/// Whether rows stay for good, because this user may not delete any.
fn is_denied(failure: &SqlFailure) -> bool {
    let denied = failure.class() == Some(ErrorClass::NoRight);
    if denied {
        tracing::debug!("unused rows stay: the user has no right to DELETE");
    } else {
        tracing::debug!(cause = %failure.cause, "unused rows are not deleted");
    }
    denied
}

/// How many rows of a kind are looked at in one round.
pub(crate) const PURGE_ROWS: usize = 64;

const EVERY: u32 = 8;

/// A request locks the row that it has created within this time, or creates it again.
const MIN_ROW_AGE: Duration = Duration::from_secs(1);

/// Longer than any statement takes.
const SETTLED: Duration = Duration::from_secs(90);

/// More are picked when some are deleted.
const MAX_PENDING_DELETES: usize = 256;
