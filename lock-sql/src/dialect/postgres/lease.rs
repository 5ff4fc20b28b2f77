//! The statements of `mode=lease` for PostgreSQL.
//!
//! A pooler that is switched to transaction mode may execute the statement that another client has prepared under the same
//! name. So the statements that acquire, renew, release or read leases have the condition `{0}`, which tells
//! one from another.
//!
//! Each statement reads the clock once, when it begins. A statement that has waited for a row works with
//! a time in the past. For a lease that it begins or ends, that time may be early, but is never late. A
//! release reads the clock again when it has the row, to say whether the lease had ended by then.

use super::{LAZY, NOW};
use crate::database::codec::{FIELDS, Field};
use crate::database::statements::{
    FAR, LEAVE_QUEUE, LIST, LOAD, LeaseStatements, Many, RenewalStatements, fill,
};
use crate::table::QUEUE;
use crate::wire::Sql;

/// The channel of the waiters; the payload names the lock.
pub(crate) const CHANNEL: &str = "polylock";

/// `table` is quoted, with its schema; `notifies` says whether waiters are notified.
pub(crate) fn statements(table: &str, notifies: bool) -> LeaseStatements {
    let sql = |template: &str| Sql::prepared(text(table, template));
    let many = |template: &str| Many::Arrays(sql(template));
    let renewals = |due, rows| RenewalStatements {
        free: many(&renew(due, "SKIP LOCKED")),
        any: many(&renew(due, "")),
        rows,
    };
    // The row has been changed just then.
    let notify = |topic: usize| match notifies {
        true => format!(
            ", CASE WHEN l.wanted_until > l.changed_at
                 THEN pg_notify('{CHANNEL}', convert_from({{{topic}}}, 'UTF8')) END"
        ),
        false => String::new(),
    };
    let notified = notify(FIELDS.len() + 4);
    LeaseStatements {
        take: sql(TAKE),
        take_in_turn: Some(sql(TAKE_IN_TURN)),
        release: sql(&format!("{RELEASE}{}", notify(3))),
        leave: sql(&format!("{LEAVE}{}", notify(3))),
        reserve: sql(RESERVE),
        adopt: sql(ADOPT),
        insert: sql(INSERT),
        load: sql(LOAD),
        want: Some(sql(WANT)),
        note_queue: None,
        enter_queue: sql(ENTER),
        leave_queue: sql(LEAVE_QUEUE),
        list: sql(LIST),
        renew: renewals(DUE, 1),
        renew_shared: renewals(SHARED_DUE, 2),
        load_many: many(
            "SELECT %now%, %columns% FROM unnest(%1%::bytea[]) AS d(k)
             JOIN %table% l ON l.kind = 1 AND l.lock_key = d.k WHERE {0}",
        ),
        store: many(&store("")),
        store_and_notify: many(&store(&notified)),
    }
}

pub(super) fn text(table: &str, template: &str) -> String {
    let vacant = format!(
        "l.id IS NULL OR l.expires_at <= excluded.changed_at
         OR l.expires_at > excluded.changed_at + {FAR}"
    );
    let mine = format!("l.id = excluded.id AND l.expires_at <= excluded.changed_at + {FAR}");
    let (far, queue) = (FAR.to_string(), QUEUE.to_string());
    let filled = fill(
        template,
        table,
        (NOW, "m.now"),
        &[
            ("%vacant%", &vacant),
            ("%mine%", &mine),
            ("%taken%", TAKEN),
            ("%far%", &far),
            ("%queue%", &queue),
            ("%clock%", "FROM (SELECT %now% AS now) m"),
            ("%lazy%", LAZY),
        ],
    );
    // The text of an array comes as bytes.
    (1..=FIELDS.len() + 3).fold(filled, |text, n| {
        text.replace(&format!("%{n}%"), &format!("convert_from({{{n}}}, 'UTF8')"))
    })
}

/// Negative numbers and nulls belong to no holder: the reader reports them.
const TAKE: &str = "
UPDATE %table% l SET %taken%
%clock%
WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND %free%
    AND %unqueued% AND l.last_token >= 0 AND l.version >= 0 AND {0}
RETURNING l.last_token";

/// Opens the lock to all clients when the queue is empty, and no waiter has entered it while this waited
/// for the row.
const TAKE_IN_TURN: &str = "
WITH m AS MATERIALIZED (SELECT %now% AS now),
others AS MATERIALIZED (
    SELECT w.token FROM m, %table% w
    WHERE w.kind = 1 AND w.lock_key = {1} AND w.slot >= %queue% AND w.id <> {5}
        AND w.expires_at > m.now AND w.expires_at <= m.now + %far%),
turn AS MATERIALIZED (
    SELECT m.now, h.queued_until, NOT EXISTS (SELECT 1 FROM others) AS is_last
    FROM m, %table% h, %table% w
    WHERE h.kind = 1 AND h.lock_key = {1} AND h.slot = 0
        AND w.kind = 1 AND w.lock_key = {1} AND w.slot >= %queue% AND w.id = {5}
        AND NOT EXISTS (SELECT 1 FROM others o WHERE o.token < w.token)),
taken AS (
    UPDATE %table% l SET %taken%,
        queued_until = CASE WHEN m.is_last AND l.queued_until = m.queued_until
            THEN 0 ELSE l.queued_until END
    FROM turn m
    WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND %free%
        AND l.last_token >= 0 AND l.version >= 0 AND {0}
    RETURNING l.last_token),
place AS (
    UPDATE %table% w SET id = NULL FROM taken
    WHERE w.kind = 1 AND w.lock_key = {1} AND w.slot >= %queue% AND w.id = {5})
SELECT last_token FROM taken";

const TAKEN: &str = "last_token = %drawn% + %further%, token = %drawn%, id = {2},
    label = convert_from({3}, 'UTF8'), acquired_at = m.now, ttl = {4}, expires_at = %end%,
    claimed_until = 0, version = l.version + 1, changed_at = m.now";

/// Does not wait for the disk: a crash may bring the lease back until its ttl is over, which costs waiters
/// that time. The next grant waits for the disk, and for this write with it.
const RELEASE: &str = "
UPDATE %table% l SET id = NULL, version = l.version + 1, changed_at = m.now
FROM (SELECT %now% AS now, %lazy% AS lazy) m
WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND l.id = {2} AND m.lazy IS NOT NULL AND {0}
RETURNING (l.expires_at > %now%)::int::bigint";

/// Waiters read all slots, and request notifications at the first one, so it is written as well. It is
/// locked first, as in [`store`]: in another order the two would wait for each other.
const LEAVE: &str = "
WITH m AS MATERIALIZED (SELECT %now% AS now, %lazy% AS lazy),
h AS (
    SELECT 1 FROM %table%
    WHERE kind = 1 AND lock_key = {1} AND slot = 0 AND {0} FOR NO KEY UPDATE),
mine AS (
    UPDATE %table% l SET id = NULL, changed_at = m.now FROM m, h
    WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot > 0 AND l.id = {2} AND m.lazy IS NOT NULL
    RETURNING (l.expires_at > %now%)::int::bigint AS in_time, m.now)
UPDATE %table% l SET sharers = l.sharers - 1, version = l.version + 1, changed_at = mine.now
FROM mine
WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0
RETURNING mine.in_time";

const RESERVE: &str = "
UPDATE %table% l SET last_token = %drawn% + %further%, version = l.version + 1
%clock%
WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND l.id = {2} AND %alive% AND l.last_token >= 0
    AND {0}
RETURNING l.last_token";

/// A repeated one finds the new id, and draws nothing. None makes a lease shorter, not even a late one. One that
/// has waited until the lease had ended finds the shared holders that came in.
const ADOPT: &str = "
UPDATE %table% l SET last_token = CASE WHEN l.id = {3} THEN l.last_token ELSE %drawn% END,
    token = CASE WHEN l.id = {3} THEN l.token ELSE %drawn% END, id = {3},
    ttl = GREATEST(l.ttl, {4}), expires_at = GREATEST(l.expires_at, %end%),
    version = l.version + 1, changed_at = m.now
%clock%
WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND l.id IN ({2}, {3}) AND %alive%
    AND l.sharers = 0 AND l.last_token >= 0 AND {0}
RETURNING l.token";

/// A version that no purged row had before.
const INSERT: &str = "
INSERT INTO %table% (kind, lock_key, last_token, changed_at, version)
SELECT 1, {1}, COALESCE(
    (SELECT last_token FROM %table% WHERE kind = 0 AND lock_key = ''::bytea), 0), m.now, m.now
%clock%
ON CONFLICT (kind, lock_key, slot) DO NOTHING";

/// Three seconds are longer than any waiter sleeps; a request is not repeated within half of that.
/// A client that reads the rows after this sees any release that could miss the request.
const WANT: &str = "
UPDATE %table% l SET wanted_until = m.now + 3000000
%clock%
WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND l.wanted_until < m.now + 1500000 AND {0}";

/// A waiter keeps its place, also one that has expired, or takes a free one. The first row of the key says
/// that there is a queue; it is locked first, as in [`TAKE_IN_TURN`]. Does not wait for the disk: a crash
/// ends the places.
const ENTER: &str = "
WITH m AS (
    UPDATE %table% l SET queued_until = c.now + {4}
    FROM (SELECT %now% AS now, %lazy% AS lazy) c
    WHERE l.kind = 1 AND l.lock_key = {1} AND l.slot = 0 AND c.lazy IS NOT NULL AND {0}
    RETURNING c.now)
INSERT INTO %table% AS l
    (kind, lock_key, slot, id, token, acquired_at, ttl, expires_at, changed_at)
SELECT 1, {1}, {2}, {3}, m.now, m.now, {4}, %end%, m.now FROM m
ON CONFLICT (kind, lock_key, slot) DO UPDATE SET
    token = CASE WHEN %mine% THEN l.token ELSE excluded.token END,
    id = excluded.id, ttl = excluded.ttl, expires_at = excluded.expires_at,
    changed_at = excluded.changed_at
WHERE l.id = excluded.id OR %vacant%";

/// Exclusive leases that can be renewed.
///
/// `l.slot + 0` is no condition of the index: without statistics the planner expects it to find one row
/// for all keys together, and reads them all.
const DUE: &str = "
due AS (
    SELECT l.lock_key, l.slot, %renewed_ttl% AS ttl, %renewed_end% AS expires_at, m.now
    FROM m, unnest(%1%::bytea[], %2%::bytea[], %3%::bigint[], %4%::bigint[]) AS d(k, i, ttl, least)
        JOIN %table% l ON l.kind = 1 AND l.lock_key = d.k AND l.slot + 0 = 0
    WHERE l.id = d.i AND %alive% AND l.sharers = 0 AND {0}
    FOR NO KEY UPDATE OF l %skip%)";

/// Shared leases, each with the first row of its key. That row is locked first, and is the only one
/// waited for: a statement that waited for another row would keep it locked.
const SHARED_DUE: &str = "
h AS (
    SELECT lock_key, slot, ttl, expires_at FROM %table%
    WHERE kind = 1 AND slot + 0 = 0 AND lock_key = ANY (%1%::bytea[]) AND {0}
    FOR NO KEY UPDATE %skip%),
mine AS (
    SELECT l.lock_key, l.slot, %renewed_ttl% AS ttl, %renewed_end% AS expires_at, m.now
    FROM m, unnest(%1%::bytea[], %2%::bytea[], %3%::bigint[], %4%::bigint[]) AS d(k, i, ttl, least)
        JOIN h ON h.lock_key = d.k
        JOIN %table% l ON l.kind = 1 AND l.lock_key = h.lock_key AND l.slot + 0 > 0
    WHERE l.id = d.i AND %alive%
    FOR NO KEY UPDATE OF l SKIP LOCKED),
due AS (
    SELECT * FROM mine UNION ALL
    SELECT h.*, m.now FROM h, m WHERE h.lock_key IN (SELECT lock_key FROM mine))";

/// Renews the due rows that it has locked; it never inserts any. An `UPDATE` with a join could read
/// other rows than those, or all rows.
fn renew(due: &str, skip: &str) -> String {
    format!(
        "WITH m AS (SELECT %now% AS now), {}
         INSERT INTO %table% AS l (kind, lock_key, slot, ttl, expires_at, changed_at)
         SELECT 1, due.* FROM due
         ON CONFLICT (kind, lock_key, slot) DO UPDATE SET ttl = excluded.ttl,
             expires_at = excluded.expires_at, changed_at = excluded.changed_at,
             version = l.version + 1
         RETURNING CASE WHEN l.slot > 0 OR l.sharers = 0 THEN l.id END",
        due.replace("%skip%", skip)
    )
}

/// Locks the first row of each key, if it has the version that was read, before it writes any of the
/// key. The CTE reads the first rows once: one that the statement has written would be skipped. For
/// `slot + 0` see [`DUE`]. Text comes as bytes.
fn store(notified: &str) -> String {
    let arrays = FIELDS
        .iter()
        .enumerate()
        .map(|(at, (_, field))| match field {
            Field::Number => format!("%{}%::bigint[]", at + 4),
            Field::Bytes | Field::Text => format!("%{}%::bytea[]", at + 4),
        });
    let values = FIELDS.iter().map(|(name, field)| match field {
        Field::Text => format!("convert_from(d.{name}, 'UTF8')"),
        Field::Bytes | Field::Number => format!("d.{name}"),
    });
    let names = FIELDS.map(|(name, _)| name);
    let set = names.map(|name| format!("{name} = excluded.{name}"));
    format!(
        "WITH h AS (
             SELECT lock_key, version FROM %table%
             WHERE kind = 1 AND slot + 0 = 0 AND lock_key = ANY (%1%::bytea[]) AND {{0}}
             ORDER BY lock_key FOR NO KEY UPDATE)
         INSERT INTO %table% AS l (kind, lock_key, slot, version, changed_at, {names})
         SELECT 1, d.k, d.slot, CASE d.slot WHEN 0 THEN h.version + 1 ELSE 0 END, m.now, {values}
         FROM (SELECT %now% AS now) m,
             unnest(%1%::bytea[], %2%::bigint[], %3%::bigint[], {arrays}) AS d(k, v, slot, {names})
             JOIN h ON h.lock_key = d.k AND h.version = d.v
         ON CONFLICT (kind, lock_key, slot) DO UPDATE SET {set},
             version = excluded.version, changed_at = excluded.changed_at
         RETURNING l.lock_key{notified}",
        names = names.join(", "),
        values = values.collect::<Vec<_>>().join(", "),
        arrays = arrays.collect::<Vec<_>>().join(", "),
        set = set.join(", "),
    )
}
