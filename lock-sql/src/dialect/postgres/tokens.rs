//! Fencing tokens from the sequence beside the table.
//!
//! A sequence is not part of a transaction: numbers drawn but not yet written to the disk are lost in a
//! crash. Every session ends in that crash, so each new session raises the sequence above all possible
//! losses before it acquires a lock. It raises the sequence to the clock of the server, which the
//! sequence stays behind below a million tokens a second. A sequence that is ahead of that clock by
//! [`RESERVE`] is raised by as much: the clock was set back, or is behind on a standby.
//!
//! One that is ahead by less, as after a burst of draws, is left as it is. Otherwise sessions that open in
//! quick succession would add up reserves and leave the clock behind, and the clock would not cover what a
//! crash or a standby loses.
//!
//! `setval` overwrites concurrent draws. Draws therefore hold an advisory lock shared, and raises hold
//! it exclusively. Its key has two numbers, and never equals the key of a lock, which has one. Both run
//! in a savepoint that is rolled back, or in a transaction whose commit waits for no disk: a commit that
//! waits for a standby while it holds the lock would stop the draws of all clients. The rollback does
//! not affect the numbers.

use super::NOW;
use crate::dialect::sequence;
use crate::session::statements::got;

/// Draws one token, as an expression. The advisory lock is held until the transaction ends, or its
/// savepoint is rolled back.
pub(crate) fn draw(table: &str) -> String {
    let (sequence, key) = (sequence(table), key(table));
    format!(
        "CASE WHEN pg_advisory_xact_lock_shared({key}) IS NULL THEN 0 \
         ELSE nextval('{sequence}'::regclass) END"
    )
}

/// Draws the first and the last token of a block for hand-overs, unless the statement runs elsewhere. Other keys may
/// get some between them; this key gets none before its lock is released.
pub(crate) fn draw_block(table: &str, count: u64, is_elsewhere: &str) -> String {
    let (draw, elsewhere) = (draw(table), got::ELSEWHERE);
    format!(
        "SELECT CASE WHEN {is_elsewhere} THEN {elsewhere} ELSE min(n) END, max(n)
         FROM (SELECT {draw} AS n FROM generate_series(1, {count}) WHERE NOT ({is_elsewhere})) drawn"
    )
}

/// Raises the sequence for a new session.
pub(crate) fn raise(table: &str) -> String {
    let (sequence, key) = (sequence(table), key(table));
    format!(
        "SELECT pg_advisory_xact_lock({key});
         SELECT setval('{sequence}'::regclass, CASE WHEN last_value < {NOW} + {RESERVE}
             THEN greatest(last_value, {NOW}) ELSE last_value + {RESERVE} END) FROM {sequence}"
    )
}

/// Draws a token that is not below the clock, as a statement after one that locks the sequence.
pub(crate) fn raise_and_draw(table: &str) -> (String, String) {
    let (sequence, key) = (sequence(table), key(table));
    (
        format!("SELECT pg_advisory_xact_lock({key})"),
        format!("setval('{sequence}'::regclass, greatest(last_value + 1, {NOW}))"),
    )
}

pub(crate) fn create(table: &str) -> String {
    let sequence = sequence(table);
    format!(
        "CREATE SEQUENCE IF NOT EXISTS {sequence} AS bigint OWNED BY {table}.last_token;
SELECT setval('{sequence}'::regclass, {NOW}) FROM {sequence} WHERE NOT is_called;"
    )
}

/// Runs a statement so that the advisory lock of the sequence is released at once, inside of a
/// transaction that goes on.
pub(crate) fn in_savepoint(statement: &str) -> String {
    format!(
        "SAVEPOINT polylock_token; {statement}; ROLLBACK TO SAVEPOINT polylock_token; \
         RELEASE SAVEPOINT polylock_token"
    )
}

fn key(table: &str) -> String {
    format!("'{}'::regclass::oid::int, 7205759", sequence(table))
}

/// Covers a clock that was set back, or is behind on a standby, by as many microseconds or more, if fewer
/// draws than this are lost.
pub(crate) const RESERVE: u32 = 10_000;
