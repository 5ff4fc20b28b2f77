//! The statements that find and delete unused rows of PostgreSQL.

use super::lease::text;
use crate::database::statements::Many;
use crate::purge::{IS_IDLE, PROGRESS, PURGE_ROWS, PurgeTexts, READ};
use crate::wire::Sql;

pub(crate) fn texts(table: &str) -> PurgeTexts {
    let sql = |template: &str| Sql::prepared(text(table, template));
    let delete = |template: &str| Many::Arrays(sql(template));
    let scan = |kind: u8, n: u8, columns: &str| {
        format!(
            "(SELECT {n}::bigint, l.lock_key, {columns} FROM %table% l, (SELECT %now% AS now) m
              WHERE l.kind = {kind} AND l.lock_key > {{{after}}} AND l.slot = 0
              ORDER BY l.lock_key LIMIT {PURGE_ROWS})",
            after = n + 1
        )
    };
    let leases = format!("({IS_IDLE})::int::bigint, l.last_token, l.version");
    PurgeTexts {
        read: sql(READ),
        scan: sql(&[
            scan(1, 0, &leases),
            scan(2, 1, "(l.changed_at <= m.now - {5})::int::bigint, 0, 0"),
            scan(9, 2, "(l.expires_at <= m.now)::int::bigint, 0, 0"),
        ]
        .join(" UNION ALL ")),
        store: sql(&format!(
            "UPDATE %table% SET {PROGRESS}
             WHERE kind = 0 AND lock_key = '' AND acquired_at = {{1}}"
        )),
        delete: [
            delete(DELETE_LEASES),
            // Two statements.
            Many::Arrays(Sql::new(text(table, DELETE_ROWS))),
            delete(DELETE_RECORDS),
        ],
    }
}

const DELETE_LEASES: &str = "
DELETE FROM %table% l
USING (SELECT %now% AS now) m,
    unnest(%1%::bytea[], %2%::bigint[], %3%::bigint[], %4%::bigint[]) AS d(k, retention, least, v)
WHERE l.kind = 1 AND l.lock_key = d.k AND %unheld% AND (l.sharers = 0 OR l.version = d.v)
    AND l.changed_at <= m.now - d.retention AND l.last_token <= d.least
    AND {0}";

/// Locks a row before it deletes it, and skips rows that a transaction has locked. The commit waits for
/// no disk and no standby, because the lock cannot be acquired until then. A row that a crash brings
/// back is deleted again.
const DELETE_ROWS: &str = "
SELECT set_config('synchronous_commit', 'off', true);
WITH m AS (SELECT %now% AS now),
unlocked AS (
    SELECT l.lock_key
    FROM m, unnest(%1%::bytea[], %2%::bigint[]) AS d(k, retention)
        JOIN %table% l ON l.kind = 2 AND l.lock_key = d.k AND l.slot = 0
    WHERE l.changed_at <= m.now - d.retention
    FOR UPDATE OF l SKIP LOCKED)
DELETE FROM %table% r USING unlocked
WHERE r.kind = 2 AND r.lock_key = unlocked.lock_key AND r.slot = 0";

const DELETE_RECORDS: &str = "
DELETE FROM %table% r USING unnest(%1%::bytea[]) AS d(k)
WHERE r.kind = 9 AND r.lock_key = d.k AND r.slot = 0 AND r.expires_at <= %now%";
