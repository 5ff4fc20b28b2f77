//! The statements that find and delete unused rows of MySQL and MariaDB.

use super::lease::{many, text};
use crate::purge::{IS_IDLE, PROGRESS, PURGE_ROWS, PurgeTexts, READ};
use crate::wire::Sql;

pub(crate) fn texts(table: &str) -> PurgeTexts {
    let sql = |template: &str| Sql::prepared(text(table, template));
    let scan = |kind: u8, n: u8, columns: &str| {
        format!(
            "(SELECT CAST({n} AS SIGNED), l.lock_key, {columns} FROM %table% l
              WHERE l.kind = {kind} AND l.lock_key > {{{after}}} AND l.slot = 0
              ORDER BY l.lock_key LIMIT {PURGE_ROWS})",
            after = n + 1
        )
    };
    let many = |before: &str, columns, after: &str| many(table, before, columns, after);
    let leases = format!("CAST(COALESCE({IS_IDLE}, 0) AS SIGNED), l.last_token, l.version");
    PurgeTexts {
        read: sql(READ),
        scan: sql(&[
            scan(1, 0, &leases),
            scan(2, 1, "CAST(l.changed_at <= %now% - {5} AS SIGNED), 0, 0"),
            scan(9, 2, "CAST(l.expires_at <= %now% AS SIGNED), 0, 0"),
        ]
        .join(" UNION ALL ")),
        store: sql(&format!("{STORE} SET {PROGRESS}")),
        delete: [
            many(
                "DELETE l FROM",
                vec!["k", "retention", "least", "v"],
                DELETE_LEASES,
            ),
            many(
                "DELETE r FROM (SELECT l.lock_key FROM",
                vec!["k", "retention"],
                &format!(
                    "{UNLOCKED} LIMIT {PURGE_ROWS} FOR UPDATE SKIP LOCKED) unlocked {DELETE_ROWS}"
                ),
            ),
            many("DELETE r FROM", vec!["k"], DELETE_RECORDS),
        ],
    }
}

/// Skips the row while it is locked: a transaction of an application that is `SERIALIZABLE` locks what it
/// reads, and others like it would wait behind this statement.
const STORE: &str = "
UPDATE (SELECT l.slot AS free FROM %table% l
    WHERE l.kind = 0 AND l.lock_key = '' AND l.slot = 0 AND l.acquired_at = {1}
    LIMIT 1 FOR UPDATE SKIP LOCKED) unlocked
STRAIGHT_JOIN %table% p ON p.kind = 0 AND p.lock_key = '' AND p.slot = unlocked.free";

const DELETE_LEASES: &str = "
STRAIGHT_JOIN %table% l ON l.kind = 1 AND l.lock_key = d.k
WHERE %unheld% AND (l.sharers = 0 OR l.version = d.v)
    AND l.changed_at <= %now% - d.retention AND l.last_token <= d.least";

/// Locks the rows that no transaction has locked. The limit keeps the optimizer from merging the
/// subquery into the statement, which would wait for the others.
const UNLOCKED: &str = "
STRAIGHT_JOIN %table% l ON l.kind = 2 AND l.lock_key = d.k AND l.slot = 0
WHERE l.changed_at <= %now% - d.retention";

const DELETE_ROWS: &str = "
STRAIGHT_JOIN %table% r ON r.kind = 2 AND r.lock_key = unlocked.lock_key AND r.slot = 0";

const DELETE_RECORDS: &str = "
STRAIGHT_JOIN %table% r ON r.kind = 9 AND r.lock_key = d.k AND r.slot = 0
WHERE r.expires_at <= %now%";
