//! The statements for the records of holders: the rows of kind 9.
//!
//! In such a row `token` is that of the holder, `broken_id`, which accepts any bytes, is the record,
//! `version` orders the records of one token, and `expires_at` is the end of the retention.

use std::sync::Arc;

use crate::wire::Sql;

/// Each is a transaction by itself, reads the clock of the database, and begins with the key.
pub(crate) struct RecordTexts {
    /// Token, bytes and version.
    pub(crate) read: Arc<Sql>,
    /// Writes a record, unless there is one with a larger token, or with the same and a larger version; then
    /// token, bytes, for how long, and the version.
    pub(crate) write: Arc<Sql>,
}

/// `LAST_INSERT_ID` of a write that MySQL or MariaDB did not store.
pub(crate) const REFUSED: u64 = 1;

/// Assignments are made from left to right: after the first two, version and token are those that are to be
/// written, or nothing is written.
pub(crate) fn mysql(table: &str) -> RecordTexts {
    use super::mysql::NOW;

    let is_written = "version = VALUES(version) AND token = VALUES(token)";
    let set = ["broken_id", "expires_at", "changed_at"];
    let set = set.map(|name| format!("{name} = IF({is_written}, VALUES({name}), {name})"));
    RecordTexts {
        read: read(table, NOW),
        write: Sql::prepared(format!(
            "INSERT INTO {table} (kind, lock_key, token, broken_id, expires_at, changed_at, version)
             VALUES (9, {{1}}, {{2}}, {{3}}, {NOW} + {{4}}, {NOW}, {{5}})
             ON DUPLICATE KEY UPDATE
                 version = IF(expires_at <= {NOW} OR token < VALUES(token)
                     OR (token = VALUES(token) AND version <= VALUES(version)), VALUES(version), version),
                 token = IF(version = VALUES(version) AND (expires_at <= {NOW} OR token <= VALUES(token)),
                     VALUES(token), token),
                 {}, session = session + 0 * LAST_INSERT_ID(IF({is_written}, 2, {REFUSED}))",
            set.join(", ")
        )),
    }
}

pub(crate) fn postgres(table: &str) -> RecordTexts {
    use super::postgres::NOW;

    RecordTexts {
        read: read(table, NOW),
        write: Sql::prepared(format!(
            "INSERT INTO {table} AS r (kind, lock_key, token, broken_id, expires_at, changed_at, version)
             SELECT 9, {{1}}, {{2}}, {{3}}, m.now + {{4}}, m.now, {{5}} FROM (SELECT {NOW} AS now) m
             ON CONFLICT (kind, lock_key, slot) DO UPDATE SET token = excluded.token,
                 broken_id = excluded.broken_id, expires_at = excluded.expires_at,
                 changed_at = excluded.changed_at, version = excluded.version
             WHERE (r.token, r.version) <= (excluded.token, excluded.version)
                 OR r.expires_at <= excluded.changed_at"
        )),
    }
}

fn read(table: &str, now: &str) -> Arc<Sql> {
    Sql::prepared(format!(
        "SELECT token, broken_id, version FROM {table}
         WHERE kind = 9 AND lock_key = {{1}} AND slot = 0 AND expires_at > {now}"
    ))
}
