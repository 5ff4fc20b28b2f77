//! Deletes unused rows of all kinds, a few at a time.

#[cfg(all(test, feature = "mysql", feature = "postgres"))]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::{Engine, Mutex};

use crate::config::{ServerKind, SqlConfig};
use crate::database::codec::whole_micros;
use crate::database::statements::Many;
use crate::dialect;
use crate::error::SqlFailure;
use crate::pool::Pool;
use crate::wire::{ErrorClass, Sql, SqlValue};

/// The statements that find and delete unused rows. Arrays are indexed by [`RowKind`].
pub(crate) struct PurgeTexts {
    /// Reads the clock and the [`PurgeProgress`].
    pub(crate) read: Arc<Sql>,
    /// Reads the next [`PURGE_ROWS`] rows of each kind, and locks none.
    ///
    /// Arguments: for each kind the key after which it begins, then the retention of leases and that of
    /// row locks. Columns: the kind, the key, whether the row is unused, and of leases the last token and
    /// the version.
    ///
    /// - Leases are unused if they have been free for the retention ([`IS_IDLE`]).
    /// - Rows of `mode=row` and of transactions are unused if they were created before the retention. A
    ///   row does not show when it was last locked.
    /// - Records are unused if they have ended.
    pub(crate) scan: Arc<Sql>,
    /// Delete unused rows, if they are still unused.
    ///
    /// - Leases: arguments key, retention, the largest token and the version from the scan. The statement
    ///   waits for rows that are locked.
    /// - Rows of `mode=row` and of transactions: arguments key and retention. The statement skips locked
    ///   rows.
    /// - Records: argument key. The statement waits for rows that are locked.
    pub(crate) delete: [Many; 3],
    /// Stores the [`PurgeProgress`], unless another client has begun a period since it was read.
    pub(crate) store: Arc<Sql>,
}

/// The text of [`PurgeTexts::read`], the same for all servers.
pub(crate) const READ: &str = "
SELECT %now%, last_token, wanted_until, claimed_until, permits, acquired_at, changed_at, broken_id
FROM %table% WHERE kind = 0 AND lock_key = ''";

/// The assignments of [`PurgeTexts::store`], the same for all servers. Before them comes the time when the
/// period began that was read.
pub(crate) const PROGRESS: &str = "
last_token = GREATEST(last_token, {2}), wanted_until = {2}, claimed_until = {3}, permits = {4},
acquired_at = {5}, changed_at = {6}, broken_id = {7}";

/// Whether the first row of a lease is unused, for [`PurgeTexts::scan`] on all servers.
///
/// `sharers` still counts holders that died, so the slots are read where it is not 0. The delete does not
/// read them again, but requires the version of the scan: each statement that adds or renews a shared
/// holder changes the version of the first row in the same transaction.
pub(crate) const IS_IDLE: &str = "
%unheld% AND l.changed_at <= %moment% - {4} AND (l.sharers = 0 OR (
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
/// What a round leaves to later ones is in the table, as [`PurgeProgress`]: the next process continues where
/// this one ends. The tokens of row locks come from elsewhere. The row of a fence stays, because a smaller
/// token may arrive at any later time.
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
    /// As [`PurgeProgress::passed`], of the last round of this process.
    passed: Option<[Vec<u8>; 3]>,
}

/// The progress of all clients, in the row of kind 0. Times and tokens are in microseconds by the clock
/// of the server.
///
/// # No token is drawn twice
///
/// A lease draws a token above the last one of its row. The statement that inserts the row reads the min
/// token of new leases, which is `last_token` of the row of kind 0. So before a lease is deleted, the min
/// is raised to its last token or above. Then all statements must end that may have read the former min.
/// No statement takes 90 s.
///
/// Only the clock of the server can measure that time for all clients, and it may be set. So the time is
/// counted in [`PERIODS`]. The first period begins when a client has read the raised min, which is
/// committed by then. A period is over when the clock is [`PERIOD`] past its start. The next one starts at
/// the time that was read then. A clock that is set forward ends only one period early, and the other
/// three take the 90 s. A clock that is set back starts the period again.
///
/// If the clock is set forward more often than once in these two minutes, a token still repeats only if
/// all of this happens:
///
/// - A statement that inserts the row of just this lease has read the former min, and ends after the
///   deletion.
/// - The clock is behind the last token of the deleted lease when the next token is drawn, since each draw
///   is at least the clock. The lease has been idle for the retention, so the clock was set back by more
///   than that.
///
/// While one raise waits for statements, there is no other one, which would begin the time again. Each
/// raise covers all leases that are idle by then, so a later round deletes all that it finds of them.
///
/// Earlier versions raise the min too, and know none of the other columns. Those are 0 or null in a table
/// that no later version has used.
#[derive(Clone, Debug, Default)]
struct PurgeProgress {
    /// When it was read.
    now: i64,
    /// `last_token`: the min token of new leases.
    floor: i64,
    /// `wanted_until`: what the min was last raised to.
    raised: i64,
    /// `claimed_until`: what it was raised to before. Leases up to this token may be deleted.
    settled: i64,
    /// `permits`: how many periods have begun since the raise.
    periods: i64,
    /// `acquired_at`: when the current one began; before the first one, when the min was raised.
    began: i64,
    /// `changed_at`: when it was stored.
    stored: i64,
    /// `broken_id`, which accepts any bytes: the last key of each kind that was looked at, with zero bytes
    /// between them. A key is empty at the end of the table. Clients overwrite the keys of each other, so
    /// some rows are looked at twice, or in the next pass.
    passed: [Vec<u8>; 3],
}

impl PurgeProgress {
    fn of(row: &[SqlValue]) -> Self {
        let number = |at: usize| row.get(at).and_then(SqlValue::int).unwrap_or_default();
        let keys = row.get(7).and_then(SqlValue::bytes).unwrap_or_default();
        let keys: Vec<_> = keys.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        Self {
            now: number(0),
            floor: number(1),
            raised: number(2),
            settled: number(3),
            periods: number(4),
            began: number(5),
            stored: number(6),
            passed: keys.try_into().unwrap_or_default(),
        }
    }

    /// Begins a period if it is time. After the last one, raises the min to `floor` or more.
    fn advance(&mut self, floor: i64) {
        if self.is_within(PERIOD, self.began) {
            return;
        }
        if self.began <= self.now {
            self.periods += 1;
        }
        if self.periods > PERIODS {
            self.settled = self.raised;
            self.raised = self.floor.max(floor);
            self.periods = 0;
        }
        self.began = self.now;
    }

    /// Whether less than `time` has passed since `moment`, and the clock was not set back.
    fn is_within(&self, time: Duration, moment: i64) -> bool {
        (moment..moment.saturating_add(micros(time))).contains(&self.now)
    }

    /// The arguments of [`PurgeTexts::store`].
    fn values(self, read: &Self) -> Vec<SqlValue> {
        let numbers = [
            read.began,
            self.raised,
            self.settled,
            self.periods,
            self.began,
            self.now,
        ];
        let keys = SqlValue::from(self.passed.join(&0));
        numbers
            .map(SqlValue::from)
            .into_iter()
            .chain([keys])
            .collect()
    }
}

/// The next rows of the table.
struct Scan {
    /// The unused ones of each kind.
    unused: [Vec<UnusedRow>; 3],
    passed: [Vec<u8>; 3],
    has_leases: bool,
}

struct UnusedRow {
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
            grown: u32::from(engine.lease_id().as_bytes()[0]) % ROWS_BETWEEN_ROUNDS,
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

    /// The table has, or may have, a new row.
    pub(crate) fn grown(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            state.grown += 1;
            if state.is_busy || state.grown < ROWS_BETWEEN_ROUNDS {
                return;
            }
            state.grown = 0;
            state.is_busy = true;
        }
        let purge = Arc::clone(self);
        self.engine.spawn(async move {
            let row_age = purge.retention.clamp(MIN_ROW_AGE, MAX_ROW_AGE);
            let done = purge.round(row_age).await;
            let denied = done.is_err_and(|failure| is_denied(&failure));
            purge.state.lock().is_busy = denied;
        });
    }

    /// Deletes the unused ones of the next rows. Those of row locks are deleted if they were created
    /// longer ago than `row_age` and no transaction has locked them.
    ///
    /// A holder keeps its row locked, so it is not deleted. A waiter whose row is deleted before its
    /// grant finds none, and creates it again. A request without a wait that meets the deletion is
    /// refused, because it cannot tell the deletion from another holder. This can happen once in
    /// `row_age` for a key, for the time of one statement.
    async fn round(&self, row_age: Duration) -> Result<(), SqlFailure> {
        let read = self.pool.run(&self.texts.read, Vec::new()).await?.rows;
        let read = read.first().map(|row| PurgeProgress::of(row));
        // Without the row that stores the min token, no lease may be deleted.
        let read = read.unwrap_or_default();
        let passed = self.state.lock().passed.clone();
        let scan = self
            .scan(passed.as_ref().unwrap_or(&read.passed), row_age)
            .await?;
        let [leases, rows, records] = &scan.unused;
        self.state.lock().passed = Some(scan.passed.clone());
        let mut next = read.clone();
        if scan.has_leases {
            // An idle lease has changed before that, and most tokens are the time of a change.
            let idle = read.now.saturating_sub(micros(self.retention));
            next.advance(leases.iter().map(|row| row.last_token).fold(idle, i64::max));
        }
        let is_moved = scan.passed != read.passed && !read.is_within(STORE_INTERVAL, read.stored);
        if is_moved || next.began != read.began {
            next.passed = scan.passed;
            self.pool.run(&self.texts.store, next.values(&read)).await?;
        }
        // A row that a transaction keeps locked stops neither the other kinds nor the next round.
        let aged = |row: &UnusedRow| vec![row.key(), SqlValue::from(whole_micros(row_age))];
        let record = |row: &UnusedRow| vec![row.key()];
        let deleted = [
            self.delete_leases(leases, read.settled).await,
            self.delete(RowKind::Rows, rows.iter().map(aged)).await,
            self.delete(RowKind::Records, records.iter().map(record))
                .await,
        ];
        deleted.into_iter().collect()
    }

    async fn scan(&self, after: &[Vec<u8>; 3], row_age: Duration) -> Result<Scan, SqlFailure> {
        let ages = [self.retention, row_age].map(|age| SqlValue::from(whole_micros(age)));
        let after = after.iter().map(|key| SqlValue::from(&key[..]));
        let values = after.chain(ages).collect();
        let rows = self.pool.run(&self.texts.scan, values).await?.rows;
        let number = |row: &[SqlValue], at: usize| row.get(at).and_then(SqlValue::int);
        let key = |row: &[SqlValue]| row.get(1).and_then(SqlValue::bytes).map(<[u8]>::to_vec);
        let of = |kind: RowKind| {
            rows.iter()
                .filter(move |row| number(row, 0) == Some(kind as i64))
        };
        let unused = |row: &Vec<SqlValue>| {
            Some(UnusedRow {
                key: key(row).filter(|_| number(row, 2) == Some(1))?,
                last_token: number(row, 3)?,
                version: number(row, 4)?,
            })
        };
        let passed = |kind| {
            let is_full = of(kind).count() == PURGE_ROWS;
            let last = of(kind).filter_map(|row| key(row)).max();
            last.filter(|_| is_full).unwrap_or_default()
        };
        let kinds = [RowKind::Leases, RowKind::Rows, RowKind::Records];
        Ok(Scan {
            unused: kinds.map(|kind| of(kind).filter_map(unused).collect()),
            passed: kinds.map(passed),
            has_leases: of(RowKind::Leases).next().is_some(),
        })
    }

    async fn delete_leases(&self, rows: &[UnusedRow], settled: i64) -> Result<(), SqlFailure> {
        let retention = whole_micros(self.retention);
        let rows = rows.iter().filter(|row| row.last_token <= settled);
        let values = |row: &UnusedRow| {
            vec![
                row.key(),
                SqlValue::from(retention),
                SqlValue::from(settled),
                SqlValue::from(row.version),
            ]
        };
        self.delete(RowKind::Leases, rows.map(values)).await
    }

    async fn delete(
        &self,
        kind: RowKind,
        rows: impl Iterator<Item = Vec<SqlValue>>,
    ) -> Result<(), SqlFailure> {
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty() {
            let (sql, values) = self.texts.delete[kind as usize].with(&rows);
            self.pool.run(&sql, values).await?;
        }
        Ok(())
    }
}

impl UnusedRow {
    fn key(&self) -> SqlValue {
        SqlValue::from(&self.key[..])
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
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

const ROWS_BETWEEN_ROUNDS: u32 = 8;

/// A request locks the row that it has created within this time, or creates it again.
const MIN_ROW_AGE: Duration = Duration::from_secs(1);

/// A row of a row lock stores nothing that a later holder needs. One of a key in use is created again once in
/// this time.
const MAX_ROW_AGE: Duration = Duration::from_secs(60 * 60);

/// How many periods a deletion waits after a raise. All but one together are as long as any statement may
/// take.
const PERIODS: i64 = 4;
const PERIOD: Duration = Duration::from_secs(30);

/// How often the keys are stored. A process also keeps its own in memory. Each write leaves an old version of
/// the row, which readers of PostgreSQL have to pass while a long transaction is open.
const STORE_INTERVAL: Duration = Duration::from_secs(1);
