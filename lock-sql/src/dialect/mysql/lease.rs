//! The statements of `mode=lease` for MySQL and MariaDB.
//!
//! Their clock stands still while a statement runs: one that has waited for another of the same row
//! works with a time that has passed, which is early for a lease that it begins or ends, and never
//! late. An `UPDATE` answers with the number that `LAST_INSERT_ID` was given.

use std::sync::Arc;

use crate::database::codec::{FIELDS, Field};
use crate::database::statements::{
    FURTHER_TOKENS, Many, PURGE_ROWS, Statements, Usage, columns, fill,
};
use crate::wire::Sql;

const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

pub(crate) fn statements(usage: Usage<'_>) -> Statements {
    let sql = |template: &str| Arc::new(Sql::new(text(usage, template)));
    let many = |before: &str, columns: Vec<&'static str>, after: &str| Many::Rows {
        before: format!("{} ", text(usage, before)),
        columns,
        after: format!(" {}", text(usage, after)),
    };
    let load = "SELECT %now%, %columns% FROM %table% l WHERE l.kind = 1 AND l.lock_key = {1}";
    let store = format!(
        "UPDATE %table% l SET {}, l.version = l.version + 1, l.changed_at = %now%
         WHERE l.kind = 1 AND l.lock_key = {{1}} AND l.version = {{2}}",
        set(|at| format!("{{{}}}", at + 3))
    );
    let names = FIELDS.iter().map(|(name, _)| *name);
    Statements {
        take: sql(TAKE),
        release: sql(RELEASE),
        leave: sql(LEAVE),
        reserve: sql(RESERVE),
        insert: sql(INSERT),
        load: sql(load),
        ask: sql(load),
        store_and_tell: sql(&store),
        store: sql(&store),
        list: sql(LIST),
        scan: sql(&format!("{SCAN} {PURGE_ROWS}")),
        raise: sql("UPDATE %table% SET last_token = GREATEST(last_token, {1})
                    WHERE kind = 0 AND lock_key = ''"),
        renew: many("UPDATE", vec!["k", "i", "ttl"], RENEW),
        load_many: many(
            "SELECT %now%, %columns% FROM",
            vec!["k"],
            "STRAIGHT_JOIN %table% l ON l.kind = 1 AND l.lock_key = d.k",
        ),
        store_many: many(
            "UPDATE",
            ["k", "v"].into_iter().chain(names).collect(),
            &format!(
                "STRAIGHT_JOIN %table% l ON l.kind = 1 AND l.lock_key = d.k
                 SET {}, l.version = l.version + 1, l.changed_at = %now%
                 WHERE l.version = d.v",
                set(|at| format!("d.{}", FIELDS[at].0))
            ),
        ),
        delete: many("DELETE l FROM", vec!["k", "retention", "least"], DELETE),
    }
}

fn text(usage: Usage<'_>, template: &str) -> String {
    let ttl = if template == RENEW { "d.ttl" } else { "{4}" };
    fill(
        template,
        &[
            ("%end%", "%now% + %ttl%"),
            (
                "%free%",
                "l.free_at <= %now% AND (l.id IS NULL OR l.expires_at <= %now%)",
            ),
            ("%alive%", "l.expires_at > %now%"),
            ("%ttl%", ttl),
            (
                "%draw%",
                "l.last_token = LAST_INSERT_ID(GREATEST(l.last_token + 1, %now%) + %further%)",
            ),
            (
                "%found%",
                "JSON_UNQUOTE(JSON_SEARCH(l.shared, 'one', CONVERT({2} USING utf8mb4), NULL,
                    '$[*].held.id'))",
            ),
            ("%further%", &FURTHER_TOKENS.to_string()),
            ("%now%", NOW),
            ("%columns%", &columns()),
            ("%table%", usage.table),
        ],
    )
}

/// Assignments of one table are made from left to right: the tokens are drawn first. Numbers below
/// zero and nulls are nobody's lock: what reads the row says so.
const TAKE: &str = "
UPDATE %table% l SET %draw%, l.token = l.last_token - %further%, l.id = {2},
    l.label = CONVERT({3} USING utf8mb4), l.acquired_at = %now%, l.ttl = {4}, l.beat = 0,
    l.expires_at = %end%, l.free_at = %end%, l.claimed_until = 0, l.version = l.version + 1,
    l.changed_at = %now%
WHERE l.kind = 1 AND l.lock_key = {1} AND %free% AND l.shared IS NULL
    AND l.last_token >= 0 AND l.version >= 0";

/// Answers 2 if the lease had not ended, and 1 if it had.
const RELEASE: &str = "
UPDATE %table% l SET l.id = NULL,
    l.free_at = 0 * LAST_INSERT_ID(IF(l.expires_at > %now%, 2, 1)),
    l.version = l.version + 1, l.changed_at = %now%
WHERE l.kind = 1 AND l.lock_key = {1} AND l.id = {2} AND l.shared IS NULL";

/// Answers as [`RELEASE`] does.
const LEAVE: &str = "
UPDATE %table% l SET
    l.version = l.version + 1 + 0 * LAST_INSERT_ID(IF(CAST(JSON_EXTRACT(l.shared,
        REPLACE(%found%, '.id', '.expires')) AS SIGNED) > %now%, 2, 1)),
    l.free_at = IF(l.id IS NULL AND JSON_LENGTH(l.shared) = 1, 0, l.free_at),
    l.changed_at = %now%,
    l.shared = IF(JSON_CONTAINS_PATH(l.shared, 'one', REPLACE(%found%, '.held.id', '.broken')),
        JSON_REMOVE(l.shared, REPLACE(%found%, '.id', '')),
        IF(JSON_LENGTH(l.shared) = 1, NULL,
            JSON_REMOVE(l.shared, REPLACE(%found%, '.held.id', ''))))
WHERE l.kind = 1 AND l.lock_key = {1} AND %found% IS NOT NULL";

const RESERVE: &str = "
UPDATE %table% l SET %draw%, l.version = l.version + 1
WHERE l.kind = 1 AND l.lock_key = {1} AND l.id = {2} AND %alive% AND l.last_token >= 0";

/// A version that no row had before which was purged.
const INSERT: &str = "
INSERT INTO %table% (kind, lock_key, last_token, changed_at, version)
SELECT 1, {1}, COALESCE(MAX(t.last_token), 0), %now%, %now% FROM %table% t
WHERE t.kind = 0 AND t.lock_key = ''
ON DUPLICATE KEY UPDATE %table%.version = %table%.version";

const LIST: &str = "
SELECT %now%, %columns% FROM %table% l
WHERE l.kind = 1 AND l.lock_key >= {1} AND l.lock_key < {2}
    AND (l.id IS NOT NULL OR l.shared IS NOT NULL)
ORDER BY l.lock_key";

const SCAN: &str = "
SELECT l.lock_key, l.last_token,
    CAST(COALESCE(%free% AND l.shared IS NULL AND l.changed_at <= %now% - {2}, 0) AS SIGNED)
FROM %table% l
WHERE l.kind = 1 AND l.lock_key > {1}
ORDER BY l.lock_key LIMIT";

const RENEW: &str = "
STRAIGHT_JOIN %table% l ON l.kind = 1 AND l.lock_key = d.k
SET l.beat = l.beat + 1, l.ttl = d.ttl, l.expires_at = %end%, l.free_at = %end%,
    l.version = l.version + 1, l.changed_at = %now%
WHERE l.id = d.i AND %alive% AND l.shared IS NULL";

const DELETE: &str = "
STRAIGHT_JOIN %table% l ON l.kind = 1 AND l.lock_key = d.k
WHERE %free% AND l.shared IS NULL AND l.changed_at <= %now% - d.retention
    AND l.last_token <= d.least";

/// Sets what is written of a row; text comes as bytes.
fn set(value: impl Fn(usize) -> String) -> String {
    let set = FIELDS.iter().enumerate().map(|(at, (name, field))| {
        let value = value(at);
        match field {
            Field::Text => format!("l.{name} = CONVERT({value} USING utf8mb4)"),
            Field::Bytes | Field::Number => format!("l.{name} = {value}"),
        }
    });
    set.collect::<Vec<_>>().join(", ")
}
