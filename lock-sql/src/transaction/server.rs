//! What PostgreSQL and MySQL have in common.

use polylock_core::{Error, ErrorKind};

use super::place::QualifiedTable;
use crate::config::ServerKind;
use crate::dialect::table::LAYOUT;
use crate::error::{SqlCause, SqlFailure};
use crate::session::server_age::Start;
use crate::wire::{DbError, ErrorClass, QueryResult, SqlValue};

/// The kinds of the rows: what is locked, and what a resource has seen.
pub(super) const LOCKED: u8 = 2;
pub(super) const FENCE: u8 = 5;

/// What the one row that begins with a number says: a token, and of a lock the layout of the table and
/// whether the start of the server is admitted.
pub(super) fn numbers(answer: &QueryResult) -> Option<(u64, Option<i64>, bool)> {
    answer.rows.iter().rev().find_map(|row| {
        let number = |at: usize| row.get(at).and_then(SqlValue::int);
        let token = u64::try_from(number(0)?).ok()?;
        Some((token, number(1), number(2) != Some(0)))
    })
}

/// The token that a resource has seen after it was raised.
pub(super) fn raised(answer: &QueryResult, place: &QualifiedTable) -> Result<u64, Error> {
    let numbers = numbers(answer).ok_or_else(|| malformed(place))?;
    Ok(numbers.0)
}

/// Refuses a server if holders of sessions from before a restart may still rely on their locks.
pub(super) fn excludes(
    start: &QueryResult,
    lineage: &[u8],
    place: &QualifiedTable,
) -> Result<(), Error> {
    let start = Start::read(start).ok_or_else(|| malformed(place))?;
    Ok(start.excludes(lineage)?)
}

/// Refuses a table with another layout.
pub(super) fn check_layout(place: &QualifiedTable, layout: Option<i64>) -> Result<(), Error> {
    match layout {
        Some(LAYOUT) => Ok(()),
        Some(found) => Err(SqlCause::layout(place.name(), found, LAYOUT).into()),
        // Not described yet, which is no older layout.
        None => Err(malformed(place)),
    }
}

/// A row that was just written is missing, or has no number.
pub(super) fn malformed(place: &QualifiedTable) -> Error {
    SqlCause::malformed(place.name()).into()
}

/// The caller's error, except for contention.
///
/// The caller owns the connection. If it broke, so did the transaction, and no outcome is unknown.
pub(super) fn failed(db_error: DbError) -> Error {
    let message = match db_error.class {
        ErrorClass::Conflict => {
            "transactions of others are in the way; repeat this one from its beginning"
        }
        ErrorClass::LockTimeout => {
            "the server waited for too long, and not for the lock; another session may have locked \
             the table, as CREATE INDEX and ALTER TABLE do"
        }
        _ => return SqlFailure::of_opening(db_error).into(),
    };
    Error::new(ErrorKind::Unavailable, message).with_source(db_error.source)
}

/// The same for a statement that needs the table.
pub(super) fn failed_at(server: ServerKind, place: &QualifiedTable, db_error: DbError) -> Error {
    let table = place.quoted(if server.is_postgres() { '"' } else { '`' }, "");
    if db_error.class != ErrorClass::NoTable {
        return failed(db_error.with_missing_right(server, &table));
    }
    let message = format!(
        "the table {table}, its schema or the database does not exist: make it with \
         polylock::sql::Schema in a program, or with lockctl schema apply"
    );
    Error::config(message).with_source(db_error.source)
}

pub(super) fn busy(db_error: DbError) -> Error {
    let message = "another transaction checks the same resource";
    Error::new(ErrorKind::Contended, message).with_source(db_error.source)
}

pub(super) fn no_transaction(db_error: DbError) -> Error {
    let message = "no transaction is open on the connection, a lock would be free at once";
    Error::new(ErrorKind::InvalidRequest, message).with_source(db_error.source)
}
