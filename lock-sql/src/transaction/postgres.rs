use std::time::{Duration, Instant};

use polylock_core::{Error, ErrorKind, LockKey, Result, Wait};
use sqlx::PgConnection;
use sqlx::postgres::PgDatabaseError;

use super::connection::DatabaseTransaction;
use super::place::QualifiedTable;
use super::server::{
    FENCE, LOCKED, busy, check_layout, excludes, failed, failed_at, malformed, no_transaction,
    numbers, raised,
};
use crate::config::ServerKind;
use crate::dialect::postgres::server_age::{self, LINEAGE};
use crate::dialect::postgres::{NOW, tokens};
use crate::dialect::sequence;
use crate::session::args::Args;
use crate::session::server_age::{first_text, witness_args};
use crate::wire::{DbError, ErrorClass, QueryResult, Sql, literal, postgres};

impl DatabaseTransaction for PgConnection {
    const BACKEND: &str = "postgres";

    async fn take(&mut self, place: &QualifiedTable, key: &LockKey, wait: Wait) -> Result<u64> {
        let begun = Instant::now();
        for _ in 0..ATTEMPTS {
            let limit = LockWaitLimit::left(wait, begun.elapsed());
            let sent = Instant::now();
            match within_savepoint(self, &take(place, key, limit)).await? {
                Ok(answer) => {
                    if let Some((token, layout, is_admitted)) = numbers(&answer) {
                        check_layout(place, layout)?;
                        if !is_admitted {
                            check_start(self, place).await?;
                        }
                        return Ok(token);
                    }
                    // The row was deleted between the two statements.
                }
                Err(db_error) if limit.is_over(&db_error, sent.elapsed()) => {
                    return Err(Error::contended(wait));
                }
                Err(db_error) => return Err(failed_at(ServerKind::Postgres, place, db_error)),
            }
        }
        Err(malformed(place))
    }

    async fn raise(
        &mut self,
        place: &QualifiedTable,
        resource: &LockKey,
        token: u64,
    ) -> Result<u64> {
        let answer = within_savepoint(self, &raise(place, resource, token)).await?;
        let answer = answer.map_err(|db_error| match db_error.class {
            ErrorClass::LockTimeout if !is_for_table(&db_error) => busy(db_error),
            _ => failed_at(ServerKind::Postgres, place, db_error),
        })?;
        raised(&answer, place)
    }
}

/// Refuses a server if holders of sessions from before a restart may still rely on their locks.
async fn check_start(raw: &mut PgConnection, place: &QualifiedTable) -> Result<()> {
    let lineage = within_savepoint(raw, LINEAGE).await?;
    let lineage = lineage.map_or_else(|_| Vec::new(), |answer| first_text(&answer));
    let read = Sql::new(server_age::read(&place.quoted('"', "")));
    let read = read.literal(witness_args(Args::new()).values(), ServerKind::Postgres);
    let answer = within_savepoint(raw, &read).await?;
    excludes(&answer.map_err(failed)?, &lineage, place)
}

/// Runs statements so that their errors do not fail the transaction of the caller. The outer error says
/// that no transaction is open, or that it has already failed.
async fn within_savepoint(
    raw: &mut PgConnection,
    statements: &str,
) -> Result<Result<QueryResult, DbError>> {
    let text = format!("SAVEPOINT polylock; {statements}; RELEASE SAVEPOINT polylock");
    let db_error = match postgres::text(raw, text).await {
        Ok(answer) => return Ok(Ok(answer)),
        Err(db_error) => db_error,
    };
    match code(&db_error).as_deref() {
        Some(NO_TRANSACTION) => return Err(no_transaction(db_error)),
        Some(FAILED_TRANSACTION) => {
            let message = "the transaction has failed before, roll it back";
            let error = Error::new(ErrorKind::InvalidRequest, message);
            return Err(error.with_source(db_error.source));
        }
        _ => {}
    }
    if !db_error.class.ends_connection() {
        let back = "ROLLBACK TO SAVEPOINT polylock; RELEASE SAVEPOINT polylock";
        let undone = postgres::text(raw, back.to_owned()).await;
        undone.map_err(failed)?;
    }
    Ok(Err(db_error))
}

/// How long the server may wait for a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LockWaitLimit {
    None,
    Milliseconds(u32),
    NoWait,
}

impl LockWaitLimit {
    fn left(wait: Wait, elapsed: Duration) -> Self {
        match wait {
            Wait::Forever => Self::None,
            Wait::AtMost(limit) if !limit.is_zero() => {
                let left = limit.saturating_sub(elapsed).as_micros().div_ceil(1000);
                let left = u32::try_from(left).unwrap_or(MAX_WAIT_MILLIS);
                Self::Milliseconds(left.clamp(1, MAX_WAIT_MILLIS))
            }
            _ => Self::NoWait,
        }
    }

    /// Whether the server stopped waiting for the lock at this limit.
    fn is_over(self, db_error: &DbError, elapsed: Duration) -> bool {
        match (self, db_error.class) {
            // Too short for a wait behind other waiters, whose error names no row.
            (Self::NoWait, ErrorClass::LockTimeout) => is_for_row(db_error),
            // The caller's own limits may be shorter.
            (Self::Milliseconds(most), ErrorClass::LockTimeout) => {
                !is_for_table(db_error) && elapsed.as_millis() >= u128::from(most)
            }
            (Self::Milliseconds(most), ErrorClass::Cancelled) => {
                elapsed.as_millis() >= u128::from(most)
            }
            _ => false,
        }
    }
}

/// Whether the server waited for a row: `NOWAIT` fails in a routine of its own, and a wait for another
/// transaction has the row as its context.
fn is_for_row(db_error: &DbError) -> bool {
    let error = postgres_error(db_error);
    error.is_some_and(|e| e.r#where().is_some() || e.routine() != Some("ProcessInterrupts"))
}

/// Whether the server waited for a table: it locks tables while it analyzes a statement, and the error
/// has the position of the name.
fn is_for_table(db_error: &DbError) -> bool {
    postgres_error(db_error).is_some_and(|e| e.position().is_some())
}

fn postgres_error(db_error: &DbError) -> Option<&PgDatabaseError> {
    db_error.source.as_database_error()?.try_downcast_ref()
}

/// Sets the limits of a wait for these statements only.
///
/// `lock_timeout` limits the wait for each lock, and `statement_timeout` limits all waits of a
/// statement. A rollback to the savepoint resets both.
fn with_limit(limit: LockWaitLimit, statements: &str) -> String {
    let lock = match limit {
        LockWaitLimit::None => 0,
        LockWaitLimit::Milliseconds(most) => most,
        // An insert has no NOWAIT.
        LockWaitLimit::NoWait => 1,
    };
    let statement = match limit {
        // Later than the other limit, whose error is more specific.
        LockWaitLimit::Milliseconds(most) => {
            let most = most.saturating_add(20);
            format!(
                "CASE WHEN current_setting('statement_timeout') = '0' \
                   OR current_setting('statement_timeout')::interval > {most} * interval '1 ms' \
                 THEN '{most}' ELSE current_setting('statement_timeout') END"
            )
        }
        LockWaitLimit::None | LockWaitLimit::NoWait => {
            "current_setting('statement_timeout')".to_owned()
        }
    };
    format!(
        "SELECT set_config('polylock.lock_timeout', current_setting('lock_timeout'), true), \
                set_config('polylock.statement_timeout', current_setting('statement_timeout'), true); \
         SELECT set_config('lock_timeout', '{lock}', true), \
                set_config('statement_timeout', {statement}, true); \
         {statements}; \
         SELECT set_config('lock_timeout', current_setting('polylock.lock_timeout'), true), \
                set_config('statement_timeout', current_setting('polylock.statement_timeout'), true)"
    )
}

/// Locks the row, which is inserted if it is missing, and draws a token for it.
///
/// The row is changed, which fails waiters with an older view of the data. The token is drawn after the
/// row is locked, so that its time is that of the grant. The draw uses the limits of the caller's
/// session, because the sequence is locked only briefly. A row that was deleted meanwhile yields no
/// token.
fn take(place: &QualifiedTable, key: &LockKey, limit: LockWaitLimit) -> String {
    let table = place.quoted('"', "");
    let is_admitted = server_age::is_admitted(&table);
    let sequence = sequence(&table);
    let (lock, token) = tokens::raise_and_draw(&table);
    let key = literal(&key.as_bytes().into(), ServerKind::Postgres);
    let nowait = match limit {
        LockWaitLimit::NoWait => "NOWAIT",
        LockWaitLimit::None | LockWaitLimit::Milliseconds(_) => "",
    };
    let locked = format!(
        "INSERT INTO {table} (kind, lock_key, changed_at) VALUES ({LOCKED}, {key}, {NOW}) \
           ON CONFLICT (kind, lock_key, slot) DO NOTHING; \
         SELECT set_config('polylock.locked', count(*)::text, true) FROM \
           (SELECT 1 FROM {table} WHERE kind = {LOCKED} AND lock_key = {key} FOR UPDATE {nowait}) held; \
         UPDATE {table} SET changed_at = {NOW} \
           WHERE kind = {LOCKED} AND lock_key = {key} AND current_setting('polylock.locked') = '1'"
    );
    let drawn = tokens::in_savepoint(&format!(
        "{lock}; SELECT {token}, \
           (SELECT token FROM {table} WHERE kind = 0 AND lock_key = ''), {is_admitted} \
           FROM {sequence} WHERE current_setting('polylock.locked') = '1'"
    ));
    format!("{}; {drawn}", with_limit(limit, &locked))
}

fn raise(place: &QualifiedTable, resource: &LockKey, token: u64) -> String {
    let table = place.quoted('"', "");
    let key = literal(&resource.as_bytes().into(), ServerKind::Postgres);
    format!(
        "INSERT INTO {table} AS fence (kind, lock_key, last_token, changed_at) \
           VALUES ({FENCE}, {key}, {token}, {NOW}) \
           ON CONFLICT (kind, lock_key, slot) DO UPDATE SET \
             last_token = GREATEST(fence.last_token, excluded.last_token), \
             changed_at = excluded.changed_at \
           RETURNING last_token"
    )
}

fn code(db_error: &DbError) -> Option<String> {
    let code = db_error.source.as_database_error()?.code()?;
    Some(code.into_owned())
}

/// A purge deletes rows that are older than a second: one that is missing more often than this is hidden
/// by a policy or a rule of the table.
const ATTEMPTS: u32 = 8;

/// The largest time-out that a server takes, with room for the larger of the two.
const MAX_WAIT_MILLIS: u32 = i32::MAX as u32 - 1000;

const NO_TRANSACTION: &str = "25P01";
/// The transaction has failed, and takes nothing but its end.
const FAILED_TRANSACTION: &str = "25P02";
