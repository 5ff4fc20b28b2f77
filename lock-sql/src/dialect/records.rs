//! The statements about what holders have stored beside their locks: the rows of kind 9.
//!
//! In such a row `token` is that of the holder, `broken_id`, which takes any bytes, what it stored, and
//! `expires_at` the end of the time for which it is kept.

use std::sync::Arc;

use crate::wire::Sql;

/// Each is a transaction by itself, reads the clock of the database, and begins with the key.
#[derive(Debug)]
pub(crate) struct RecordTexts {
    pub(crate) read: Arc<Sql>,
    /// Writes a record, unless there is one with a larger token; then token, bytes and for how long.
    pub(crate) write: Arc<Sql>,
    /// Deletes those that have ended, of the last ones up to a key: names that are numbered or dated grow.
    pub(crate) purge: Arc<Sql>,
}

/// What a database without a count of the rows that it has written says of none.
pub(crate) const REFUSED: u64 = 1;

/// Assignments are made from left to right: with the first one the tokens are equal, or nothing is written.
#[cfg(feature = "mysql")]
pub(crate) fn mysql(table: &str) -> RecordTexts {
    use super::mysql::NOW;

    let set = ["broken_id", "expires_at", "changed_at"];
    let set = set.map(|name| format!("{name} = IF(token = VALUES(token), VALUES({name}), {name})"));
    RecordTexts {
        read: read(table, NOW),
        write: Sql::new(format!(
            "INSERT INTO {table} (kind, lock_key, token, broken_id, expires_at, changed_at)
             VALUES (9, {{1}}, {{2}}, {{3}}, {NOW} + {{4}}, {NOW})
             ON DUPLICATE KEY UPDATE
                 token = IF(expires_at <= {NOW}, VALUES(token), GREATEST(token, VALUES(token))),
                 {}, version = version + 0 * LAST_INSERT_ID(IF(token = VALUES(token), 2, {REFUSED}))",
            set.join(", ")
        )),
        purge: Sql::new(format!(
            "DELETE r FROM ({}) near STRAIGHT_JOIN {table} r
                 ON r.kind = 9 AND r.lock_key = near.lock_key AND r.slot = 0
             WHERE r.expires_at <= {NOW}",
            near(table)
        )),
    }
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres(table: &str) -> RecordTexts {
    use super::postgres::NOW;

    RecordTexts {
        read: read(table, NOW),
        write: Sql::new(format!(
            "INSERT INTO {table} AS r (kind, lock_key, token, broken_id, expires_at, changed_at)
             SELECT 9, {{1}}, {{2}}, {{3}}, m.now + {{4}}, m.now FROM (SELECT {NOW} AS now) m
             ON CONFLICT (kind, lock_key, slot) DO UPDATE SET token = excluded.token,
                 broken_id = excluded.broken_id, expires_at = excluded.expires_at,
                 changed_at = excluded.changed_at
             WHERE r.token <= excluded.token OR r.expires_at <= excluded.changed_at"
        )),
        purge: Sql::new(format!(
            "DELETE FROM {table} r USING ({}) near
             WHERE r.kind = 9 AND r.lock_key = near.lock_key AND r.slot = 0 AND r.expires_at <= {NOW}",
            near(table)
        )),
    }
}

fn read(table: &str, now: &str) -> Arc<Sql> {
    Sql::new(format!(
        "SELECT token, broken_id FROM {table}
         WHERE kind = 9 AND lock_key = {{1}} AND slot = 0 AND expires_at > {now}"
    ))
}

fn near(table: &str) -> String {
    format!(
        "SELECT lock_key FROM {table} WHERE kind = 9 AND lock_key <= {{1}}
         ORDER BY lock_key DESC LIMIT {PURGE_ROWS}"
    )
}

/// How many records are looked at in a purge.
const PURGE_ROWS: usize = 64;
