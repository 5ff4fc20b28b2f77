//! The statements of `mode=lease` for PostgreSQL.
//!
//! Each reads the clock once, when it begins: one that has waited for another of the same row works
//! with a time that has passed, which is early for a lease that it begins or ends, and never late.

use std::sync::Arc;

use crate::database::codec::{FIELDS, Field};
use crate::database::statements::{
    FURTHER_TOKENS, Many, PURGE_ROWS, Statements, Usage, columns, fill,
};
use crate::wire::Sql;

const NOW: &str = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint";

/// What waiters listen to; the payload says for whom it is.
pub(crate) const CHANNEL: &str = "polylock";

pub(crate) fn statements(usage: Usage<'_>) -> Statements {
    let sql = |template: &str| Arc::new(Sql::new(text(usage, template)));
    let many = |template: &str| Many::Arrays(sql(template));
    let tell = |topic: &str| match usage.tells {
        true => format!(
            ", CASE WHEN l.wanted_until > m.now
                 THEN pg_notify('{CHANNEL}', convert_from({topic}, 'UTF8')) END"
        ),
        false => String::new(),
    };
    let store = format!(
        "UPDATE %table% l SET {}, version = l.version + 1, changed_at = m.now %clock%
         WHERE l.kind = 1 AND l.lock_key = {{1}} AND l.version = {{2}} RETURNING 1::bigint",
        set(|at| format!("{{{}}}", at + 3))
    );
    let topic = format!("{{{}}}", FIELDS.len() + 3);
    Statements {
        take: sql(TAKE),
        release: sql(&format!("{RELEASE}{}", tell("{3}"))),
        leave: sql(&format!("{LEAVE}{}", tell("{3}"))),
        reserve: sql(RESERVE),
        insert: sql(INSERT),
        load: sql("SELECT %now%, %columns% FROM %table% l WHERE l.kind = 1 AND l.lock_key = {1}"),
        ask: sql(ASK),
        store_and_tell: sql(&format!("{store}{}", tell(&topic))),
        store: sql(&store),
        list: sql(LIST),
        scan: sql(&format!("{SCAN} {PURGE_ROWS}")),
        raise: sql("UPDATE %table% SET last_token = GREATEST(last_token, {1})
                    WHERE kind = 0 AND lock_key = ''::bytea"),
        renew: many(RENEW),
        load_many: many(
            "SELECT %now%, %columns% FROM unnest(%1%::bytea[]) AS d(k)
             JOIN %table% l ON l.kind = 1 AND l.lock_key = d.k",
        ),
        store_many: many(&store_many()),
        delete: many(DELETE),
    }
}

fn text(usage: Usage<'_>, template: &str) -> String {
    let ttl = if template == RENEW { "d.ttl" } else { "{4}" };
    let filled = fill(
        template,
        &[
            ("%end%", "m.now + %ttl%"),
            (
                "%free%",
                "l.free_at <= m.now AND (l.id IS NULL OR l.expires_at <= m.now)",
            ),
            ("%alive%", "l.expires_at > m.now"),
            ("%ttl%", ttl),
            ("%drawn%", "GREATEST(l.last_token + 1, m.now)"),
            ("%further%", &FURTHER_TOKENS.to_string()),
            (
                "%his%",
                "(s.seat->'held'->>'id' IS NOT DISTINCT FROM convert_from({2}, 'UTF8'))",
            ),
            ("%clock%", "FROM (SELECT %now% AS now) m"),
            ("%now%", NOW),
            ("%columns%", &columns()),
            ("%table%", usage.table),
        ],
    );
    // The text of an array comes as bytes.
    (1..=FIELDS.len() + 2).fold(filled, |text, n| {
        text.replace(&format!("%{n}%"), &format!("convert_from({{{n}}}, 'UTF8')"))
    })
}

/// Numbers below zero and nulls are nobody's lock: what reads the row says so.
const TAKE: &str = "
UPDATE %table% l SET last_token = %drawn% + %further%, token = %drawn%, id = {2},
    label = convert_from({3}, 'UTF8'), acquired_at = m.now, ttl = {4}, beat = 0,
    expires_at = %end%, free_at = %end%, claimed_until = 0, version = l.version + 1,
    changed_at = m.now
%clock%
WHERE l.kind = 1 AND l.lock_key = {1} AND %free% AND l.shared IS NULL
    AND l.last_token >= 0 AND l.version >= 0
RETURNING l.last_token";

const RELEASE: &str = "
UPDATE %table% l SET id = NULL, free_at = 0, version = l.version + 1, changed_at = m.now
%clock%
WHERE l.kind = 1 AND l.lock_key = {1} AND l.id = {2} AND l.shared IS NULL
RETURNING (l.expires_at > m.now)::int::bigint";

/// What the row was before says whether that was in time: nobody else writes of this lease. Its id
/// may stand there as that of a lease that was broken, in a seat that another one has now.
const LEAVE: &str = "
UPDATE %table% l SET
    shared = (
        SELECT jsonb_agg(CASE WHEN %his% THEN s.seat - 'held' ELSE s.seat END)::text
        FROM jsonb_array_elements(l.shared::jsonb) AS s(seat)
        WHERE NOT %his% OR s.seat->'broken' IS NOT NULL),
    free_at = CASE WHEN l.id IS NULL AND jsonb_array_length(l.shared::jsonb) = 1
            AND l.shared::jsonb->0->'held'->>'id' = convert_from({2}, 'UTF8')
        THEN 0 ELSE l.free_at END,
    version = l.version + 1, changed_at = m.now
%clock%
WHERE l.kind = 1 AND l.lock_key = {1} AND strpos(l.shared, convert_from({2}, 'UTF8')) > 0
RETURNING COALESCE((
    SELECT ((s.seat->'held'->>'expires')::bigint > m.now)::int::bigint
    FROM %table% o, jsonb_array_elements(o.shared::jsonb) AS s(seat)
    WHERE o.kind = 1 AND o.lock_key = {1} AND %his%), 0)";

const RESERVE: &str = "
UPDATE %table% l SET last_token = %drawn% + %further%, version = l.version + 1
%clock%
WHERE l.kind = 1 AND l.lock_key = {1} AND l.id = {2} AND %alive% AND l.last_token >= 0
RETURNING l.last_token";

/// A version that no row had before which was purged.
const INSERT: &str = "
INSERT INTO %table% (kind, lock_key, last_token, changed_at, version)
SELECT 1, {1}, COALESCE(
    (SELECT last_token FROM %table% WHERE kind = 0 AND lock_key = ''::bytea), 0), m.now, m.now
%clock%
ON CONFLICT (kind, lock_key) DO NOTHING";

/// Three seconds are longer than any waiter sleeps; what is wanted for half of that is not written
/// again. Whoever reads a row without writing sees it as it was before any release that could miss
/// the wish.
const ASK: &str = "
WITH m AS (SELECT %now% AS now),
told AS (
    UPDATE %table% l SET wanted_until = m.now + 3000000 FROM m
    WHERE l.kind = 1 AND l.lock_key = {1} AND l.wanted_until < m.now + 1500000
    RETURNING m.now, %columns%)
SELECT * FROM told
UNION ALL
SELECT m.now, %columns% FROM %table% l, m
WHERE l.kind = 1 AND l.lock_key = {1} AND NOT EXISTS (SELECT FROM told)";

const LIST: &str = "
SELECT %now%, %columns% FROM %table% l
WHERE l.kind = 1 AND l.lock_key >= {1} AND l.lock_key < {2}
    AND (l.id IS NOT NULL OR l.shared IS NOT NULL)
ORDER BY l.lock_key";

const SCAN: &str = "
SELECT l.lock_key, l.last_token,
    (%free% AND l.shared IS NULL AND l.changed_at <= m.now - {2})::int::bigint
FROM %table% l, (SELECT %now% AS now) m
WHERE l.kind = 1 AND l.lock_key > {1}
ORDER BY l.lock_key LIMIT";

const RENEW: &str = "
UPDATE %table% l SET beat = l.beat + 1, ttl = d.ttl, expires_at = %end%, free_at = %end%,
    version = l.version + 1, changed_at = m.now
FROM (SELECT %now% AS now) m,
    unnest(%1%::bytea[], %2%::bytea[], %3%::bigint[]) AS d(k, i, ttl)
WHERE l.kind = 1 AND l.lock_key = d.k AND l.id = d.i AND %alive% AND l.shared IS NULL
RETURNING l.id";

const DELETE: &str = "
DELETE FROM %table% l
USING (SELECT %now% AS now) m,
    unnest(%1%::bytea[], %2%::bigint[], %3%::bigint[]) AS d(k, retention, least)
WHERE l.kind = 1 AND l.lock_key = d.k AND %free% AND l.shared IS NULL
    AND l.changed_at <= m.now - d.retention AND l.last_token <= d.least";

fn store_many() -> String {
    let arrays: Vec<_> = FIELDS
        .iter()
        .enumerate()
        .map(|(at, (_, field))| match field {
            Field::Number => format!("%{}%::bigint[]", at + 3),
            Field::Bytes | Field::Text => format!("%{}%::bytea[]", at + 3),
        })
        .collect();
    let names: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
    format!(
        "UPDATE %table% l SET {}, version = l.version + 1, changed_at = m.now
         FROM (SELECT %now% AS now) m,
             unnest(%1%::bytea[], %2%::bigint[], {}) AS d(k, v, {})
         WHERE l.kind = 1 AND l.lock_key = d.k AND l.version = d.v RETURNING l.lock_key",
        set(|at| format!("d.{}", FIELDS[at].0)),
        arrays.join(", "),
        names.join(", ")
    )
}

/// Sets what is written of a row; text comes as bytes.
fn set(value: impl Fn(usize) -> String) -> String {
    let set = FIELDS.iter().enumerate().map(|(at, (name, field))| {
        let value = value(at);
        match field {
            Field::Text => format!("{name} = convert_from({value}, 'UTF8')"),
            Field::Bytes | Field::Number => format!("{name} = {value}"),
        }
    });
    set.collect::<Vec<_>>().join(", ")
}
