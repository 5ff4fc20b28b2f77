//! The statements of `mode=row` and `mode=advisory` for PostgreSQL.
//!
//! They are sent as text, several in one message: outside of `BEGIN` and `COMMIT` a message is one
//! transaction, and each of its statements sees what was committed when it begins.

use std::sync::Arc;

use crate::session::texts::{Draw, LOCKED, Texts};
use crate::wire::Sql;

const NOW: &str = "(extract(epoch from clock_timestamp()) * 1000000)::bigint";
const ELAPSED: &str =
    "(extract(epoch from clock_timestamp() - statement_timestamp()) * 1000000)::bigint";
/// The same however often a message asks for it.
const MESSAGE: &str = "(extract(epoch from statement_timestamp()) * 1000000)::bigint";
const BEGAN: &str = "(extract(epoch from now()) * 1000000)::bigint";

/// Row locks: the row of kind 2 is locked, and the one of kind 3 is its record.
///
/// `is_pooled` says that settings of a session would meet those of others: then each transaction
/// brings its own.
pub(crate) fn row(table: &str, is_pooled: bool) -> Texts {
    let settings = if is_pooled {
        "SELECT set_config(name, CASE name
             WHEN 'idle_in_transaction_session_timeout' THEN ({11}::bigint)::text
             WHEN 'client_connection_check_interval' THEN '1s'
             ELSE '0' END, true)
         FROM pg_settings WHERE name IN ('idle_in_transaction_session_timeout',
             'client_connection_check_interval', 'statement_timeout', 'transaction_timeout');"
    } else {
        ""
    };
    let take = |strength: &str, wait: &str| {
        let (begin, suffix) = match wait {
            "" => (String::new(), " NOWAIT"),
            wait => (
                format!("SELECT set_config('lock_timeout', {wait}, true);"),
                "",
            ),
        };
        Sql::new(format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {settings} {begin}
             SELECT {LOCKED}::bigint FROM {table} WHERE kind = 2 AND lock_key = {{1}}
                 FOR {strength}{suffix};
             SELECT 1::bigint, (r.kind IS NOT NULL)::int::bigint,
                 coalesce(r.drawn_by = {{2}}, false)::int::bigint,
                 coalesce(r.token, 0), coalesce(r.last_token, 0), {ELAPSED},
                 pg_backend_pid()::bigint, {BEGAN}, 1::bigint
             FROM (SELECT 1) one LEFT JOIN {table} r ON r.kind = 3 AND r.lock_key = {{1}}"
        ))
    };
    let wait = "({4}::bigint)::text";
    let undo = || Arc::new(Sql::new("ROLLBACK"));
    // The end of the transaction frees the row; the record follows by itself.
    let release = || Arc::new(Sql::new("ROLLBACK; SELECT 1::bigint"));
    let lazily = "SELECT set_config('synchronous_commit', 'off', true)";
    let forget = Sql::new(format!(
        "ROLLBACK; {lazily}; {}; SELECT 1::bigint",
        forget(table, 3)
    ));
    let forget_shared = Sql::new(format!(
        "ROLLBACK; {lazily}; {}; SELECT 1::bigint",
        forget_shared(table, 3)
    ));
    let seed = format!(
        "INSERT INTO {table} (kind, lock_key, last_token, changed_at)
         SELECT kinds.kind, {{1}}, coalesce((SELECT last_token FROM {table}
             WHERE kind = 0 AND lock_key = ''), 0), {NOW}
         FROM (VALUES (2::smallint), (3::smallint)) kinds (kind)
         ON CONFLICT (kind, lock_key) DO NOTHING"
    );
    Texts {
        try_take: [Arc::new(take("UPDATE", "")), Arc::new(take("SHARE", ""))],
        wait_take: [
            Arc::new(take("UPDATE", wait)),
            Arc::new(take("SHARE", wait)),
        ],
        undo: [undo(), undo()],
        release: [release(), release()],
        release_recorded: [Arc::new(forget), Arc::new(forget_shared)],
        downgrade: None,
        seed: Arc::new(Sql::new(seed)),
        alive: Arc::new(Sql::new(format!("SELECT {}", row_alive("{6}", "{12}")))),
        ..common(
            table,
            3,
            "lock_key",
            &row_alive("r.session", "r.session_began"),
        )
    }
}

/// Session locks: what is locked is a number, and the row of kind 4 says for which key.
pub(crate) fn advisory(table: &str) -> Texts {
    let take = |suffix: &str, waits: bool| {
        let lock = if waits {
            format!(
                "SELECT set_config('lock_timeout', ({{4}}::bigint)::text, true);
                 SELECT set_config('polylock.got', '2', true);
                 SELECT pg_advisory_lock{suffix}({{3}})
                     FROM (SELECT 1) one WHERE pg_backend_pid() = {{6}};
                 SELECT set_config('polylock.got', '1', true)
                     FROM (SELECT 1) one WHERE pg_backend_pid() = {{6}}"
            )
        } else {
            // Behind a pooler the session may be another one, which keeps what it is given.
            format!(
                "SELECT set_config('polylock.got', CASE WHEN pg_backend_pid() = {{6}}
                     THEN (pg_try_advisory_lock{suffix}({{3}}))::int::text ELSE '2' END, true)"
            )
        };
        let got = "current_setting('polylock.got')";
        Sql::new(format!(
            "{lock}; {};
             SELECT {got}::bigint, (r.kind IS NOT NULL)::int::bigint,
                 coalesce(r.drawn_by = {{2}}, false)::int::bigint,
                 coalesce(r.token, 0), coalesce(r.last_token, 0), {ELAPSED},
                 pg_backend_pid()::bigint, 0::bigint,
                 coalesce(r.name = {{10}}, true)::int::bigint
             FROM (SELECT 1) one LEFT JOIN {table} r ON r.kind = 4 AND r.lock_key = {{1}}",
            draw(
                table,
                4,
                &format!(
                    "{got} = '1' AND name = {{10}}
                     AND (drawn_by IS DISTINCT FROM {{2}} OR {{5}} = 1)"
                )
            ),
        ))
    };
    let unlock = |suffix: &str| format!("SELECT (pg_advisory_unlock{suffix}({{3}}))::int::bigint");
    let forgetful = |suffix: &str, forget: &str| {
        let lazily = "SELECT set_config('synchronous_commit', 'off', true)";
        Arc::new(Sql::new(format!("{}; {lazily}; {forget}", unlock(suffix))))
    };
    let seed = format!(
        "INSERT INTO {table} (kind, lock_key, name, last_token, changed_at)
         VALUES (4, {{1}}, {{10}}, coalesce((SELECT last_token FROM {table}
             WHERE kind = 0 AND lock_key = ''), 0), {NOW})
         ON CONFLICT (kind, lock_key) DO NOTHING"
    );
    let plain = |suffix: &str| Arc::new(Sql::new(unlock(suffix)));
    Texts {
        try_take: [Arc::new(take("", false)), Arc::new(take("_shared", false))],
        wait_take: [Arc::new(take("", true)), Arc::new(take("_shared", true))],
        undo: [plain(""), plain("_shared")],
        release: [plain(""), plain("_shared")],
        release_recorded: [
            forgetful("", &forget(table, 4)),
            forgetful("_shared", &forget_shared(table, 4)),
        ],
        // The session has it in both ways for a moment, and nobody else gets in between.
        downgrade: Some(Arc::new(Sql::new(
            "SELECT pg_advisory_lock_shared({3});
             SELECT (pg_advisory_unlock({3}))::int::bigint",
        ))),
        seed: Arc::new(Sql::new(seed)),
        alive: Arc::new(Sql::new(format!("SELECT {}", advisory_alive("{6}", "{3}")))),
        ..common(
            table,
            4,
            "name",
            &advisory_alive("r.session", "r.session_began"),
        )
    }
}

fn common(table: &str, kind: u8, name: &str, alive: &str) -> Texts {
    let columns = format!(
        "{name}, r.id, r.token, r.label, r.acquired_at, r.session, r.session_began,
         r.drawn_by, r.shared, CASE WHEN r.id IS NULL THEN 0 ELSE {alive} END, r.broken_id"
    );
    let entry = "jsonb_build_object(convert_from({14}, 'UTF8'), convert_from({8}, 'UTF8')::jsonb)";
    let nothing = || Arc::new(Sql::new("SELECT 1::bigint"));
    Texts {
        setup: Arc::new(Sql::new("SELECT pg_backend_pid()::bigint")),
        setup_more: None,
        try_take: [nothing(), nothing()],
        wait_take: [nothing(), nothing()],
        undo: [nothing(), nothing()],
        release: [nothing(), nothing()],
        release_recorded: [nothing(), nothing()],
        downgrade: None,
        probe: Arc::new(Sql::new("SELECT pg_backend_pid()::bigint")),
        cancel: Arc::new(Sql::new("SELECT pg_cancel_backend({6}::int)::int::bigint")),
        seed: nothing(),
        draw: Draw::Row(Arc::new(Sql::new(format!(
            "{} RETURNING token, last_token",
            draw(table, kind, "true")
        )))),
        record: Arc::new(Sql::new(format!(
            "UPDATE {table} SET id = {{7}}, token = {{13}}, label = convert_from({{8}}, 'UTF8'),
                 acquired_at = {NOW}, session = {{6}}, session_began = {{12}}, shared = NULL,
                 changed_at = {NOW}
             WHERE kind = {kind} AND lock_key = {{1}} AND drawn_by = {{2}}"
        ))),
        record_shared: Arc::new(Sql::new(format!(
            "UPDATE {table} SET id = NULL,
                 shared = (coalesce(shared, '{{{{}}}}')::jsonb || {entry})::text,
                 changed_at = {NOW}
             WHERE kind = {kind} AND lock_key = {{1}}"
        ))),
        list: Arc::new(Sql::new(format!(
            "SELECT {columns} FROM {table} r WHERE r.kind = {kind} AND r.{name} >= {{1}}
                 AND r.{name} < {{15}} AND (r.id IS NOT NULL OR r.shared IS NOT NULL)
             ORDER BY r.{name}"
        ))),
        inspect: Arc::new(Sql::new(format!(
            "SELECT {columns} FROM {table} r WHERE r.kind = {kind} AND r.lock_key = {{1}}"
        ))),
        alive: nothing(),
        mark_broken: Arc::new(Sql::new(format!(
            "UPDATE {table} SET broken_id = {{7}}, broken_reason = convert_from({{14}}, 'UTF8'),
                 changed_at = {NOW}
             WHERE kind = {kind} AND lock_key = {{1}}"
        ))),
        terminate: Arc::new(Sql::new(
            "SELECT pg_terminate_backend({6}::int)::int::bigint",
        )),
    }
}

/// Settings of a connection that no pooler shares; those that a version has not are left out.
pub(crate) fn settings(is_row: bool) -> Arc<Sql> {
    let idle = if is_row {
        "idle_in_transaction_session_timeout"
    } else {
        "idle_session_timeout"
    };
    Arc::new(Sql::new(format!(
        "SELECT set_config(name, CASE
             WHEN name = '{idle}' THEN ({{11}}::bigint)::text
             WHEN name = 'client_connection_check_interval' THEN '1s'
             WHEN name = 'tcp_user_timeout' THEN ({{11}}::bigint)::text
             WHEN name = 'tcp_keepalives_idle'
                 THEN (greatest({{11}}::bigint / 2000, 1))::text
             WHEN name = 'tcp_keepalives_interval' THEN '1'
             WHEN name = 'tcp_keepalives_count'
                 THEN (greatest({{11}}::bigint / 2000, 1))::text
             ELSE '0' END, false)
         FROM pg_settings WHERE name IN ('idle_in_transaction_session_timeout',
             'idle_session_timeout', 'client_connection_check_interval', 'tcp_user_timeout',
             'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count',
             'statement_timeout', 'transaction_timeout', 'lock_timeout')"
    )))
}

fn draw(table: &str, kind: u8, condition: &str) -> String {
    let first = format!("greatest(last_token + 1, {MESSAGE})");
    format!(
        "UPDATE {table} SET token = {first}, last_token = {first} + {{9}}, drawn_by = {{2}},
             id = CASE WHEN {{9}} = 0 THEN NULL ELSE {{7}} END,
             label = convert_from({{8}}, 'UTF8'), acquired_at = {NOW}, session = {{6}},
             session_began = {{12}}, shared = CASE WHEN {{9}} = 0 THEN shared END,
             version = version + 1, changed_at = {NOW}
         WHERE kind = {kind} AND lock_key = {{1}} AND {condition}"
    )
}

fn forget(table: &str, kind: u8) -> String {
    format!("UPDATE {table} SET id = NULL WHERE kind = {kind} AND lock_key = {{1}} AND id = {{7}}")
}

fn forget_shared(table: &str, kind: u8) -> String {
    format!(
        "UPDATE {table} SET shared = nullif((shared::jsonb - convert_from({{14}}, 'UTF8'))::text,
             '{{{{}}}}')
         WHERE kind = {kind} AND lock_key = {{1}} AND shared IS NOT NULL"
    )
}

/// A session has its row for as long as the transaction lasts in which it took it.
fn row_alive(session: &str, began: &str) -> String {
    format!(
        "(SELECT count(*) FROM pg_stat_activity a WHERE a.pid = {session} AND (a.xact_start IS NULL
             OR (extract(epoch from a.xact_start) * 1000000)::bigint = {began}))"
    )
}

/// The server lists who holds which number; a record keeps that where a row lock has its time.
fn advisory_alive(session: &str, number: &str) -> String {
    format!(
        "(SELECT count(*) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted
             AND l.pid = {session} AND l.objsubid = 1
             AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND l.classid::bigint = (({number}) >> 32) & 4294967295
             AND l.objid::bigint = ({number}) & 4294967295)"
    )
}
