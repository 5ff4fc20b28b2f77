//! The statements of `mode=lease` for MySQL and MariaDB.
//!
//! Their clock stands still while a statement runs. A statement that has waited for a row works with a
//! time in the past. For a lease that it begins or ends, that time may be early, but is never late. An
//! `UPDATE` returns the number that `LAST_INSERT_ID` was given.

use super::NOW;
use crate::database::codec::{FIELDS, Field};
use crate::database::statements::{
    FAR, LEAVE_QUEUE, LIST, LOAD, LeaseStatements, Many, RenewalStatements, fill,
};
use crate::wire::Sql;

pub(crate) fn statements(table: &str) -> LeaseStatements {
    let sql = |template: &str| Sql::prepared(text(table, template));
    let many = |before: &str, columns, after: &str| many(table, before, columns, after);
    let renew = |columns: &str, due: &str| {
        many(
            &format!("{RENEW} SELECT 1, l.lock_key, {columns}, %now% FROM"),
            vec!["k", "i", "ttl", "least"],
            &format!("{due} {RENEW_AFTER}"),
        )
    };
    let shared = |first_row: &str| SHARED_DUE.replace("%h%", first_row);
    let names = FIELDS.map(|(name, _)| name);
    let store = || {
        many(
            &store(&names.join(", ")),
            ["k", "v", "slot"].into_iter().chain(names).collect(),
            &format!(
                "{STORE_AFTER} {}",
                names
                    .map(|name| format!("{name} = VALUES({name})"))
                    .join(", ")
            ),
        )
        .prepared()
    };
    LeaseStatements {
        take: sql(TAKE),
        take_in_turn: None,
        release: sql(RELEASE),
        leave: sql(LEAVE),
        reserve: sql(RESERVE),
        adopt: sql(ADOPT),
        insert: sql(INSERT),
        load: sql(LOAD),
        want: None,
        note_queue: Some(sql(NOTE_QUEUE)),
        enter_queue: sql(ENTER),
        leave_queue: sql(LEAVE_QUEUE),
        list: sql(LIST),
        renew: RenewalStatements {
            free: renew(COLUMNS, &format!("{DUE} SKIP LOCKED")),
            any: renew(COLUMNS, DUE).prepared(),
            rows: 1,
        },
        renew_shared: RenewalStatements {
            free: renew(SHARED_COLUMNS, &shared(FIRST_ROW)),
            any: renew(SHARED_COLUMNS, &shared(FIRST_ROW_OF_ONE)).prepared(),
            rows: 2,
        },
        load_many: many(
            "SELECT %now%, %columns% FROM",
            vec!["k"],
            "STRAIGHT_JOIN %table% l ON l.kind = 1 AND l.lock_key = d.k",
        ),
        store: store(),
        store_and_notify: store(),
    }
}

/// A statement whose rows stand between these texts.
pub(super) fn many(table: &str, before: &str, columns: Vec<&'static str>, after: &str) -> Many {
    Many::Rows {
        before: format!("{} ", text(table, before)),
        columns,
        after: format!(" {}", text(table, after)),
        is_prepared: false,
    }
}

pub(super) fn text(table: &str, template: &str) -> String {
    let vacant = format!("id IS NULL OR expires_at <= %now% OR expires_at > %now% + {FAR}");
    let mine = format!("id = VALUES(id) AND expires_at <= %now% + {FAR}");
    fill(
        template,
        table,
        (NOW, NOW),
        &[
            ("%vacant%", &vacant),
            ("%mine%", &mine),
            ("%late%", LATE),
            (
                "%draw%",
                "l.last_token = LAST_INSERT_ID(%drawn% + %further%)",
            ),
        ],
    )
}

/// Assignments of one table run from left to right, so the tokens are drawn first. Negative numbers and
/// nulls belong to no holder: the reader reports them.
const TAKE: &str = "
UPDATE %table% l SET %draw%, l.token = l.last_token - %further%, l.id = {2},
    l.label = CONVERT({3} USING utf8mb4), l.acquired_at = %now%, l.ttl = {4},
    l.expires_at = %end%, l.claimed_until = 0, l.version = l.version + 1, l.changed_at = %now%
WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND %free%
    AND %unqueued% AND l.last_token >= 0 AND l.version >= 0";

/// The time when a statement has its row. `SYSDATE` does not stand still, and is a time of the session's
/// zone.
const LATE: &str = "%now% + TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6))";

/// Answers 2 if the lease had not ended by the end of a wait for the row, and 1 if it had.
const RELEASE: &str = "
UPDATE %table% l SET l.id = NULL,
    l.version = l.version + 1 + 0 * LAST_INSERT_ID(IF(l.expires_at > %late%, 2, 1)),
    l.changed_at = %now%
WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND l.id = {2}";

/// Answers as [`RELEASE`] does. The first row of the key is locked first, as by [`store`]: in another
/// order the two would wait for each other. `l.slot + 0` is no bound of an index: the scan of a range
/// would also lock the row behind it, which belongs to another key or to a transaction.
const LEAVE: &str = "
UPDATE %table% h
STRAIGHT_JOIN %table% l ON l.kind = 1 AND l.lock_key = h.lock_key AND l.slot + 0 > 0 AND l.id = {2}
SET h.sharers = h.sharers - 1,
    h.version = h.version + 1 + 0 * LAST_INSERT_ID(IF(l.expires_at > %late%, 2, 1)),
    h.changed_at = %now%, l.id = NULL, l.changed_at = %now%
WHERE h.kind = 1 AND h.lock_key = {1} AND h.slot = 0";

const RESERVE: &str = "
UPDATE %table% l SET %draw%, l.version = l.version + 1
WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND l.id = {2} AND %alive% AND l.last_token >= 0";

/// A repeated one finds the new id, and draws nothing. None makes a lease shorter, not even a late one. One that
/// has waited until the lease had ended finds the shared holders that came in.
const ADOPT: &str = "
UPDATE %table% l SET l.last_token = IF(l.id = {3}, l.last_token, %drawn%),
    l.token = LAST_INSERT_ID(IF(l.id = {3}, l.token, l.last_token)), l.id = {3},
    l.ttl = GREATEST(l.ttl, {4}), l.expires_at = GREATEST(l.expires_at, %end%),
    l.version = l.version + 1, l.changed_at = %now%
WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND l.id IN ({2}, {3}) AND %alive%
    AND l.sharers = 0 AND l.last_token >= 0";

/// A version that no purged row had before.
const INSERT: &str = "
INSERT INTO %table% (kind, lock_key, last_token, changed_at, version)
SELECT 1, {1}, COALESCE(MAX(t.last_token), 0), %now%, %now% FROM %table% t
WHERE t.kind = 0 AND t.lock_key = ''
ON DUPLICATE KEY UPDATE %table%.version = %table%.version";

const NOTE_QUEUE: &str = "
UPDATE %table% SET queued_until = %now% + {2} WHERE kind = 1 AND lock_key = {1} AND slot = 0";

/// A waiter keeps its place, also one that has expired. Assignments run from left to right: until `id` is
/// written, the slot belongs to its former waiter.
const ENTER: &str = "
INSERT INTO %table% (kind, lock_key, slot, id, token, acquired_at, ttl, expires_at, changed_at)
VALUES (1, {1}, {2}, {3}, %now%, %now%, {4}, %now% + {4}, %now%)
ON DUPLICATE KEY UPDATE
    token = IF(%mine%, token, IF(%vacant%, VALUES(token), token)),
    id = IF(%vacant%, VALUES(id), id),
    ttl = IF(id = VALUES(id), VALUES(ttl), ttl),
    expires_at = IF(id = VALUES(id), VALUES(expires_at), expires_at),
    changed_at = VALUES(changed_at)";

/// Renews rows that it has locked; it never inserts any. An `UPDATE` cannot skip locked rows. Returns
/// the time from which the leases last.
const RENEW: &str = "
INSERT INTO %table% (kind, lock_key, slot, ttl, expires_at, changed_at)";

const RENEW_AFTER: &str = "
ON DUPLICATE KEY UPDATE ttl = VALUES(ttl), expires_at = VALUES(expires_at),
    changed_at = LAST_INSERT_ID(VALUES(changed_at)), version = %table%.version + 1";

const COLUMNS: &str = "l.slot, %renewed_ttl%, %renewed_end%";

const DUE: &str = "
STRAIGHT_JOIN %table% l ON l.kind = 1 AND l.lock_key = d.k AND l.slot = 0
WHERE l.id = d.i AND %alive% AND l.sharers = 0
FOR UPDATE";

const SHARED_COLUMNS: &str = "IF(n.is_mine, l.slot, 0), IF(n.is_mine, %renewed_ttl%, h.ttl),
    IF(n.is_mine, %renewed_end%, h.expires_at)";

/// Shared leases, each with the first row of its key. That row is locked first, and is the only one
/// waited for: a statement that waited for another row would keep it locked. For `slot + 0` see
/// [`LEAVE`].
const SHARED_DUE: &str = "
STRAIGHT_JOIN %h%
STRAIGHT_JOIN %table% l ON l.kind = 1 AND l.lock_key = h.lock_key AND l.slot + 0 > 0
STRAIGHT_JOIN (SELECT 0 AS is_mine UNION ALL SELECT 1) n
WHERE l.id = d.i AND %alive%
FOR UPDATE SKIP LOCKED";

const FIRST_ROW: &str = "%table% h ON h.kind = 1 AND h.lock_key = d.k AND h.slot = 0";

/// A lock on the rows of a subquery is taken as the subquery says.
const FIRST_ROW_OF_ONE: &str = "
(SELECT lock_key, ttl, expires_at FROM %table%
 WHERE kind = 1 AND lock_key = {1} AND slot = 0 FOR UPDATE) h ON h.lock_key = d.k";

/// Locks the first row of each key, if it has the version that was read, before it writes any.
/// Text comes as bytes.
fn store(names: &str) -> String {
    let values = FIELDS.iter().map(|(name, field)| match field {
        Field::Text => format!("CONVERT(d.{name} USING utf8mb4)"),
        Field::Bytes | Field::Number => format!("d.{name}"),
    });
    format!(
        "INSERT INTO %table% (kind, lock_key, slot, version, changed_at, {names})
         SELECT 1, d.k, d.slot, IF(d.slot = 0, h.version + 1, 0), %now%, {} FROM",
        values.collect::<Vec<_>>().join(", ")
    )
}

const STORE_AFTER: &str = "
STRAIGHT_JOIN %table% h ON h.kind = 1 AND h.lock_key = d.k AND h.slot = 0 AND h.version = d.v
FOR UPDATE
ON DUPLICATE KEY UPDATE version = VALUES(version), changed_at = VALUES(changed_at),";
