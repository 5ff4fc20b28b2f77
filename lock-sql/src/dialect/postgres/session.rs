//! The statements of `mode=row` and `mode=advisory` for PostgreSQL.
//!
//! They are sent as text, several in one message: outside of `BEGIN` and `COMMIT` a message is one
//! transaction, and each of its statements sees what was committed when it begins. What is usual is
//! prepared when the session begins, because to plan it costs the server more than to run it.

use std::sync::Arc;

use super::server_age;
use crate::session::args::Args;
use crate::session::texts::{Draw, Texts, got};
use crate::wire::Sql;

pub(super) const NOW: &str = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint";
const ELAPSED: &str =
    "(date_part('epoch', clock_timestamp() - statement_timestamp()) * 1000000)::bigint";
/// The same however often a message asks for it.
const MESSAGE: &str = "(date_part('epoch', statement_timestamp()) * 1000000)::bigint";
const BEGAN: &str = "(date_part('epoch', now()) * 1000000)::bigint";

/// The types of the arguments, by their numbers.
const TYPES: &[(usize, &str)] = &[
    (Args::ROW_KEY, "bytea"),
    (Args::SESSION_ID, "bytea"),
    (Args::LOCK, "bigint"),
    (Args::SESSION, "bigint"),
    (Args::LEASE, "bytea"),
    (Args::LABEL, "bytea"),
    (Args::MORE_TOKENS, "bigint"),
    (Args::NAME, "bytea"),
    (Args::BEGAN, "bigint"),
];

/// Statements that a session has prepared.
#[derive(Default)]
struct Prepared {
    setup: String,
    is_pooled: bool,
}

impl Prepared {
    /// Prepares a statement, with the arguments of [`TYPES`] only; how it is run. Behind a pooler it is written out.
    fn add(&mut self, name: &str, statement: &str) -> String {
        if self.is_pooled {
            return statement.to_owned();
        }
        let (mut body, mut types, mut values) = (statement.to_owned(), vec![], vec![]);
        for (number, kind) in TYPES {
            let argument = format!("{{{number}}}");
            if statement.contains(&argument) {
                types.push(*kind);
                body = body.replace(&argument, &format!("${}", types.len()));
                values.push(argument);
            }
        }
        let (types, values) = (types.join(", "), values.join(", "));
        self.setup = format!(
            "{}PREPARE polylock_{name} ({types}) AS {body}; ",
            self.setup
        );
        format!("EXECUTE polylock_{name} ({values})")
    }

    /// Prepares what was added, records the session, and tells its number.
    fn into_setup(self, table: &str) -> Arc<Sql> {
        let settings = if self.is_pooled { "" } else { SETTINGS };
        let record = server_age::record(table, self.is_pooled);
        // The role may read only, unless it is told otherwise before its first query.
        Arc::new(Sql::new(format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE; {settings}{}{record}",
            self.setup
        )))
    }
}

/// Row locks: the row of kind 2 is locked, and the one of kind 3 is its record.
///
/// `is_pooled` says that settings of a session would meet those of others: then each transaction
/// brings its own.
pub(crate) fn row(table: &str, is_pooled: bool) -> Texts {
    let mut prepared = Prepared {
        is_pooled,
        ..Prepared::default()
    };
    let begin = if is_pooled {
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
         SELECT set_config(name, CASE name
             WHEN 'idle_in_transaction_session_timeout' THEN ({11}::bigint)::text
             WHEN 'client_connection_check_interval' THEN '1s'
             ELSE '0' END, true)
         FROM pg_settings WHERE name IN ('idle_in_transaction_session_timeout',
             'client_connection_check_interval', 'statement_timeout', 'transaction_timeout')"
    } else {
        "BEGIN"
    };
    // A pooler goes on with the next server as if it were the one before.
    let started = match is_pooled {
        true => format!(", {}", server_age::is_recorded(table)),
        false => String::new(),
    };
    let record = format!(
        "SELECT (r.kind IS NOT NULL)::int::bigint, coalesce(r.drawn_by = {{2}}, false)::int::bigint,
             coalesce(r.token, 0), coalesce(r.last_token, 0), {ELAPSED},
             pg_backend_pid()::bigint, {BEGAN}, 1::bigint,
             (coalesce(r.claimed_until, 0) > {NOW})::int::bigint{started}
         FROM (SELECT 1) one LEFT JOIN {table} r ON r.kind = 3 AND r.lock_key = {{1}}"
    );
    let record = prepared.add("record", &record);
    let mut lock = |name: &str, strength: &str| {
        let body = format!(
            "SELECT {}::bigint FROM {table} WHERE kind = 2 AND lock_key = {{1}} FOR {strength}",
            got::TAKEN
        );
        prepared.add(name, &body)
    };
    let tries = [
        lock("try", "UPDATE NOWAIT"),
        lock("try_shared", "SHARE NOWAIT"),
    ];
    let waits = [lock("wait", "UPDATE"), lock("wait_shared", "SHARE")];
    let wait = "SELECT set_config('lock_timeout', ({4}::bigint)::text, true)";
    let seed = format!(
        "{SHORTLY}; INSERT INTO {table} (kind, lock_key, last_token, changed_at)
         SELECT kinds.kind, {{1}}, coalesce((SELECT last_token FROM {table}
             WHERE kind = 0 AND lock_key = ''), 0), {NOW}
         FROM (VALUES (2::smallint), (3::smallint)) kinds (kind)
         ON CONFLICT (kind, lock_key, slot) DO NOTHING"
    );
    // The end of the transaction frees the row.
    let rollback = || Arc::new(Sql::new("ROLLBACK"));
    // Before the row is free: whoever comes next may keep the record locked for long.
    let forget_shared = format!("{LAZILY}; {}; COMMIT", forget_shared(table, 3));
    Texts {
        setup: prepared.into_setup(table),
        try_take: tries.map(|lock| Arc::new(Sql::new(format!("{begin}; {lock}; {record}")))),
        wait_take: waits
            .map(|lock| Arc::new(Sql::new(format!("{begin}; {wait}; {lock}; {record}")))),
        // A row that is shared is shared with everybody who asks, whoever waits for it. A record that
        // is locked is that of a transaction, which shares nothing.
        claim: Some(Arc::new(Sql::new(format!(
            "UPDATE {table} SET claimed_until = {NOW} + 2000000
             WHERE (kind, lock_key) IN (SELECT kind, lock_key FROM {table}
                 WHERE kind = 3 AND lock_key = {{1}} FOR NO KEY UPDATE SKIP LOCKED)"
        )))),
        read_record: Arc::new(Sql::new(&record)),
        undo: [rollback(), rollback()],
        release: [rollback(), rollback()],
        // A record is no holder's whose transaction is over; those who share are many.
        release_recorded: [rollback(), Arc::new(Sql::new(forget_shared))],
        seed: Arc::new(Sql::new(seed)),
        alive: Arc::new(Sql::new(format!("SELECT {}", row_alive("{6}", "{12}")))),
        terminate: terminate(&row_alive("{6}", "{12}")),
        ..common(
            table,
            3,
            "lock_key",
            "TRUE",
            &row_alive("r.session", "r.session_began"),
            is_pooled,
        )
    }
}

/// Session locks: what is locked is a number, and the row of kind 4 says for which key.
///
/// Behind a pooler the session may be another one, which would keep what it is given: the number of
/// the session is part of every question.
pub(crate) fn advisory(table: &str) -> Texts {
    let mut prepared = Prepared::default();
    let same_name = "name = {10}";
    let columns = |mine: &str| {
        format!(
            "{mine}, coalesce(r.token, 0), coalesce(r.last_token, 0), {ELAPSED},
             pg_backend_pid()::bigint, 0::bigint"
        )
    };
    let record = format!(
        "SELECT (r.kind IS NOT NULL)::int::bigint, {}, coalesce(r.{same_name}, true)::int::bigint
         FROM (SELECT 1) one LEFT JOIN {table} r ON r.kind = 4 AND r.lock_key = {{1}}",
        columns("coalesce(r.drawn_by = {2}, false)::int::bigint")
    );
    let record = prepared.add("record", &record);
    let try_take = |prepared: &mut Prepared, suffix: &str| {
        let body = format!(
            "SELECT CASE WHEN pg_backend_pid() <> {{6}} THEN {}
                 WHEN pg_try_advisory_lock{suffix}({{3}}) THEN {} ELSE {} END::bigint",
            got::ELSEWHERE,
            got::TAKEN,
            got::NOT
        );
        let lock = prepared.add(&format!("try{suffix}"), &body);
        Arc::new(Sql::new(format!("{lock}; {record}")))
    };
    let wait_take = |prepared: &mut Prepared, suffix: &str| {
        let body = format!(
            "SELECT CASE WHEN pg_advisory_lock{suffix}({{3}}) IS NULL THEN {} ELSE {} END::bigint
             FROM (SELECT 1) one WHERE pg_backend_pid() = {{6}}",
            got::NOT,
            got::TAKEN
        );
        let lock = prepared.add(&format!("wait{suffix}"), &body);
        let here = format!("pg_backend_pid() = {{6}} AND {same_name}");
        let draw = prepared.add(&format!("draw{suffix}"), &draw(table, 4, &here));
        Arc::new(Sql::new(format!(
            "SELECT set_config('lock_timeout', ({{4}}::bigint)::text, true); {lock}; {draw}; {record}"
        )))
    };
    let unlock = |prepared: &mut Prepared, suffix: &str| {
        let body = format!("SELECT (pg_advisory_unlock{suffix}({{3}}))::int::bigint");
        prepared.add(&format!("unlock{suffix}"), &body)
    };
    let seed = format!(
        "{SHORTLY}; INSERT INTO {table} (kind, lock_key, name, last_token, changed_at)
         VALUES (4, {{1}}, {{10}}, coalesce((SELECT last_token FROM {table}
             WHERE kind = 0 AND lock_key = ''), 0), {NOW})
         ON CONFLICT (kind, lock_key, slot) DO NOTHING"
    );
    let unlocks = ["", "_shared"].map(|suffix| unlock(&mut prepared, suffix));
    let plain = |at: usize| Arc::new(Sql::new(&unlocks[at]));
    let forget_shared = format!("{}; {LAZILY}; {}", unlocks[1], forget_shared(table, 4));
    Texts {
        try_take: ["", "_shared"].map(|suffix| try_take(&mut prepared, suffix)),
        wait_take: ["", "_shared"].map(|suffix| wait_take(&mut prepared, suffix)),
        setup: prepared.into_setup(table),
        read_record: Arc::new(Sql::new(&record)),
        undo: [plain(0), plain(1)],
        release: [plain(0), plain(1)],
        release_recorded: [plain(0), Arc::new(Sql::new(forget_shared))],
        // The session has it in both ways for a moment, and nobody else gets in between.
        downgrade: Some(Arc::new(Sql::new(
            "SELECT pg_advisory_lock_shared({3});
             SELECT (pg_advisory_unlock({3}))::int::bigint",
        ))),
        seed: Arc::new(Sql::new(seed)),
        alive: Arc::new(Sql::new(format!("SELECT {}", advisory_alive("{6}", "{3}")))),
        terminate: terminate(&advisory_alive("{6}", "{3}")),
        ..common(
            table,
            4,
            "name",
            same_name,
            &advisory_alive("r.session", "r.session_began"),
            false,
        )
    }
}

/// Whoever makes the rows of a key in a transaction of its own has locked it, and others need not wait
/// to know.
const SHORTLY: &str = "SELECT set_config('lock_timeout', '100', true)";

/// What is written for people need not survive a crash, which ends all sessions.
const LAZILY: &str = "SELECT set_config('synchronous_commit', 'off', true)";

fn common(
    table: &str,
    kind: u8,
    name: &str,
    same_name: &str,
    alive: &str,
    is_pooled: bool,
) -> Texts {
    let columns = format!(
        "{name}, r.id, r.token, r.label, r.acquired_at, r.session, r.session_began,
         r.drawn_by, r.shared, CASE WHEN r.id IS NULL THEN 0 ELSE {alive} END, r.broken_id"
    );
    let entry = "jsonb_build_object(convert_from({14}, 'UTF8'), convert_from({8}, 'UTF8')::jsonb)";
    let nothing = || Arc::new(Sql::new("SELECT 1::bigint"));
    Texts {
        setup: Arc::new(Sql::new("SELECT pg_backend_pid()::bigint")),
        start: server_age::texts(table, is_pooled),
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
        claim: None,
        read_record: nothing(),
        draw: Draw::Row(Arc::new(Sql::new(format!(
            "{} RETURNING token, last_token",
            draw(
                table,
                kind,
                &format!("{same_name} AND ({{5}} < 0 OR last_token = {{5}})")
            )
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
        terminate: nothing(),
    }
}

/// Ends a session, if it still holds the lock.
fn terminate(alive: &str) -> Arc<Sql> {
    Arc::new(Sql::new(format!(
        "SELECT pg_terminate_backend({{6}}::int)::int::bigint FROM (SELECT 1) one WHERE {alive} > 0"
    )))
}

/// What the locks of a session rest on, and the server ends a session that is silent by; a version that
/// has not all of them is older than the setting. A pooler that keeps connections may have some of an
/// earlier session.
const SETTINGS: &str = "DEALLOCATE ALL;
    SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
    SELECT set_config(name, CASE
        WHEN name LIKE 'idle%' THEN ({11}::bigint)::text
        WHEN name = 'plan_cache_mode' THEN 'force_generic_plan'
        WHEN name = 'bytea_output' THEN 'hex'
        ELSE '0' END, false)
    FROM pg_settings WHERE name IN ('idle_in_transaction_session_timeout', 'idle_session_timeout',
        'statement_timeout', 'transaction_timeout', 'lock_timeout', 'plan_cache_mode',
        'bytea_output');
    ";

/// By which the server notices a client that is gone; not every system has them.
pub(crate) fn settings() -> Arc<Sql> {
    Arc::new(Sql::new(
        "SELECT set_config(name, CASE name
             WHEN 'client_connection_check_interval' THEN '1s'
             WHEN 'tcp_user_timeout' THEN ({11}::bigint)::text
             WHEN 'tcp_keepalives_interval' THEN '1'
             ELSE least(greatest({11}::bigint / 2000, 1), 100)::text END, false)
         FROM pg_settings WHERE name IN ('client_connection_check_interval', 'tcp_user_timeout',
             'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count')",
    ))
}

fn draw(table: &str, kind: u8, condition: &str) -> String {
    let first = format!("greatest(last_token + 1, {MESSAGE})");
    format!(
        "UPDATE {table} SET token = {first}, last_token = {first} + {{9}}, drawn_by = {{2}},
             id = CASE WHEN {{9}} = 0 THEN NULL ELSE {{7}} END,
             label = convert_from({{8}}, 'UTF8'), acquired_at = {NOW}, session = {{6}},
             session_began = {{12}}, shared = CASE WHEN {{9}} = 0 THEN shared END,
             claimed_until = CASE WHEN {{9}} = 0 THEN claimed_until ELSE 0 END,
             version = version + 1, changed_at = {NOW}
         WHERE kind = {kind} AND lock_key = {{1}} AND {condition}"
    )
}

fn forget_shared(table: &str, kind: u8) -> String {
    format!(
        "UPDATE {table} SET shared = nullif((shared::jsonb - convert_from({{14}}, 'UTF8'))::text,
             '{{{{}}}}')
         WHERE kind = {kind} AND lock_key = {{1}} AND shared IS NOT NULL"
    )
}

/// A session has its row for as long as the transaction lasts in which it took it; of the sessions of
/// others the server tells nothing but that they are there.
fn row_alive(session: &str, began: &str) -> String {
    format!(
        "(SELECT count(*) FROM pg_stat_activity a WHERE a.pid = {session} AND (a.backend_start IS NULL
             OR (date_part('epoch', a.xact_start) * 1000000)::bigint = {began}))"
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
