//! The statements of `mode=row` and `mode=advisory` for PostgreSQL.
//!
//! An attempt for an advisory lock is one prepared statement, and so is a release without a record.
//! Other statements are sent as text, several in one message. Outside of `BEGIN` and `COMMIT` a message
//! is one transaction, and each of its statements sees what was committed when it begins. The usual ones
//! among them are prepared when the session begins, because planning costs the server more than execution.

use std::sync::Arc;
use std::time::Duration;

use super::{LAZY, NOW, server_age, tokens};
use crate::dialect::sequence;
use crate::session::statements::{SessionStatements, forget_holder, got, of_records};
use crate::table::TOKENS_AT_ONCE;
use crate::wire::Sql;

const ELAPSED: &str =
    "(date_part('epoch', clock_timestamp() - statement_timestamp()) * 1000000)::bigint";
const BEGAN: &str = "(date_part('epoch', now()) * 1000000)::bigint";

/// Statements that a session has prepared.
#[derive(Default)]
struct PreparedStatements {
    setup: String,
    is_pooled: bool,
}

impl PreparedStatements {
    /// Prepares a statement; returns how to run it. Its name has the id of the session: an undeclared pooler may
    /// lead to a session that another client has set up, where the same name would be a statement for another table.
    /// Behind a declared one, returns the statement as text.
    fn add(&mut self, name: &str, statement: &str) -> String {
        if self.is_pooled {
            return statement.to_owned();
        }
        let (mut body, mut types, mut values) = (statement.to_owned(), Vec::new(), Vec::new());
        for (argument, kind) in ARGUMENTS {
            if body.contains(argument) {
                types.push(kind);
                values.push(argument);
                body = body.replace(argument, &format!("${}", types.len()));
            }
        }
        debug_assert!(!body.contains('{'), "another argument: {body}");
        // Empty parentheses are a syntax error.
        let list = |of: &[&str]| match of {
            [] => String::new(),
            _ => format!(" ({})", of.join(", ")),
        };
        let (types, values) = (list(&types), list(&values));
        let name = format!("polylock_{name}_{{=2}}");
        self.setup = format!("{}PREPARE {name}{types} AS {body}; ", self.setup);
        format!("EXECUTE {name}{values}")
    }

    /// Prepares the added statements, marks the session and raises the tokens. Records the session and returns its
    /// number, if it `is_ours`.
    fn into_setup(self, table: &str, mark: &str, is_ours: &str) -> Arc<Sql> {
        let settings = match self.is_pooled {
            true => String::new(),
            false => format!("{SETTINGS} AND {is_ours}; "),
        };
        let record = server_age::record(table, self.is_pooled, is_ours);
        // Its advisory lock must not wait for the commit: see `tokens`.
        let raise = tokens::in_savepoint(&tokens::raise(table));
        // The role may be read-only, unless that is changed before its first query.
        Sql::new(format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {mark}{settings}{}{raise}; {record}; COMMIT",
            self.setup
        ))
    }
}

/// Row locks: the row of kind 2 is locked, and the one of kind 3 names the holder.
///
/// `is_pooled` says that session settings would mix with those of other clients: then each transaction
/// sets its own.
pub(crate) fn row(table: &str, is_pooled: bool) -> SessionStatements {
    let mut prepared = PreparedStatements {
        is_pooled,
        ..PreparedStatements::default()
    };
    let begin = if is_pooled {
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
         SELECT set_config(name, CASE name
             WHEN 'idle_in_transaction_session_timeout' THEN ({11}::bigint)::text
             WHEN 'client_connection_check_interval' THEN '1s'
             ELSE '0' END, true)
         FROM pg_settings WHERE name IN ('idle_in_transaction_session_timeout',
             'client_connection_check_interval', 'statement_timeout', 'transaction_timeout',
             'lock_timeout')"
    } else {
        "BEGIN"
    };
    // A pooler goes on with the next server as if it were the one before.
    let started = match is_pooled {
        true => format!(", {}", server_age::is_recorded(table)),
        false => String::new(),
    };
    // A crash loses numbers that were drawn in an open transaction: see `tokens`.
    let grant = |prepared: &mut PreparedStatements, name: &str, claimed: &str| {
        let columns = format!("{ELAPSED}, pg_backend_pid()::bigint, {BEGAN}, {claimed}{started}");
        if is_pooled {
            // A connection of the client outlasts a crash behind the pooler, so that no new session
            // raises the sequence after it: each grant does.
            let (lock, token) = tokens::raise_and_draw(table);
            let sequence = sequence(table);
            return tokens::in_savepoint(&format!(
                "{lock}; SELECT {token}, {columns} FROM {sequence}"
            ));
        }
        let body = format!("SELECT {}, {columns}", tokens::draw(table));
        tokens::in_savepoint(&prepared.add(name, &body))
    };
    // A claim further in the future was made before the clock was set back.
    let is_claimed = |left: u32| {
        format!(
            "r.kind = 3 AND r.lock_key = {{1}}
                 AND r.claimed_until BETWEEN {NOW} + {left} AND {NOW} + {CLAIM}"
        )
    };
    let claimed = format!("(SELECT count(*) FROM {table} r WHERE {})", is_claimed(0));
    let grants = [
        grant(&mut prepared, "grant", "0::bigint"),
        grant(&mut prepared, "grant_shared", &claimed),
    ];
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
    // A row that a crash forgets is made again.
    let seed = format!(
        "SELECT {LAZY}; {SET_LOCK_TIMEOUT}; INSERT INTO {table} (kind, lock_key, changed_at)
         VALUES (2, {{1}}, {NOW}) ON CONFLICT (kind, lock_key, slot) DO NOTHING"
    );
    // The end of the transaction frees the row.
    let rollback = || Sql::new("ROLLBACK");
    let forget = |text: String| Sql::new(format!("ROLLBACK; SELECT {LAZY}; {text}"));
    let message =
        |wait: &str, lock: &str, grant: &str| Sql::new(format!("{begin}; {wait}{lock}; {grant}"));
    let wait = format!("{wait}; ");
    SessionStatements {
        setup: prepared.into_setup(table, "", "true"),
        try_take: [0, 1].map(|at| message("", &tries[at], &grants[at])),
        wait_take: [0, 1].map(|at| message(&wait, &waits[at], &grants[at])),
        // A shared row lock admits every shared request, even with exclusive waiters. One claim stands
        // for all waiters.
        claim: Some(Sql::new(format!(
            "SELECT {LAZY}; INSERT INTO {table} (kind, lock_key, claimed_until, changed_at)
             SELECT 3, {{1}}, {NOW} + {CLAIM}, {NOW} WHERE NOT EXISTS (SELECT 1 FROM {table} r
                 WHERE {})
             ON CONFLICT (kind, lock_key, slot) DO UPDATE SET claimed_until = excluded.claimed_until",
            is_claimed(CLAIM / 2)
        ))),
        unclaim: Some(Sql::new(format!(
            "SELECT {LAZY}; UPDATE {table} SET claimed_until = 0 WHERE kind = 3 AND lock_key = {{1}}"
        ))),
        release: [rollback(), rollback()],
        release_recorded: [
            forget(forget_holder(table, 3)),
            forget(forget_shared(table, 3)),
        ],
        // Elsewhere no transaction is open, and a savepoint is an error.
        draw: Sql::new(tokens::in_savepoint(&tokens::draw_block(
            table,
            TOKENS_AT_ONCE,
            "false",
        ))),
        seed: Sql::new(seed),
        alive: Sql::prepared(format!("SELECT {}", row_alive("{6}", "{12}"))),
        terminate: terminate(&row_held("{6}", "{12}")),
        ..common(
            table,
            3,
            "lock_key",
            &row_alive("r.session", "r.session_began"),
            is_pooled,
        )
    }
}

/// The arguments of statements that a session prepares, and their types.
const ARGUMENTS: [(&str, &str); 5] = [
    ("{1}", "bytea"),
    ("{2}", "bytea"),
    ("{3}", "bigint"),
    ("{4}", "bigint"),
    ("{6}", "bigint"),
];

/// How long a claim lasts, in microseconds.
const CLAIM: u32 = 2_000_000;

/// Session locks: a number is locked, and the row of kind 4 names the holder and the key.
///
/// Behind a pooler, the statement may reach another session, which would keep the lock, or whose locks another
/// client has. Two clients may even have set up the same session. So each statement on a lock checks whether it runs in
/// the [session of this client](IS_ELSEWHERE).
pub(crate) fn advisory(table: &str) -> SessionStatements {
    // The next session raises the sequence above the draws that a crash loses, so no draw waits for the
    // disk. See `tokens`.
    let token = tokens::draw(table);
    let lock = |attempt: &str, elapsed: &str| {
        format!(
            "SELECT CASE WHEN {IS_ELSEWHERE} THEN {}::bigint
                 WHEN {attempt} THEN {}::bigint
                 ELSE {token} END,
                 {elapsed}, pg_backend_pid()::bigint, 0::bigint",
            got::ELSEWHERE,
            got::NOT
        )
    };
    let tries = ["", "_shared"].map(|suffix| {
        let attempt = format!("NOT pg_try_advisory_lock{suffix}({{3}}) OR {LAZY} IS NULL");
        Sql::prepared(lock(&attempt, "0::bigint"))
    });
    // Settings are changed before the wait, so that they do not delay the hand-off. It is sent in one write: a
    // cancellation between two would miss the second one.
    let mut prepared = PreparedStatements::default();
    let waits = ["", "_shared"].map(|suffix| {
        let limit = "set_config('lock_timeout', ({4}::bigint)::text, true) IS NULL";
        let lock_it = format!("pg_advisory_lock{suffix}({{3}}) IS NULL");
        let attempt = format!("{limit} OR {LAZY} IS NULL OR {lock_it}");
        Sql::new(prepared.add(&format!("wait{suffix}"), &lock(&attempt, ELAPSED)))
    });
    // The session of another client may have the lock.
    let unlocks = ["", "_shared"].map(|suffix| {
        Sql::prepared(format!(
            "SELECT CASE WHEN {IS_ELSEWHERE} THEN {}::bigint
                 ELSE (pg_advisory_unlock{suffix}({{3}}))::int::bigint END",
            got::ELSEWHERE
        ))
    });
    let clear = |text: String| Sql::new(format!("SELECT {LAZY}; {text}"));
    SessionStatements {
        try_take: tries,
        wait_take: waits,
        setup: prepared.into_setup(table, MARK, IS_MARKED),
        release: unlocks,
        clear_record: Some([
            clear(forget_holder(table, 4)),
            clear(forget_shared(table, 4)),
        ]),
        // For a moment the session has it in both modes, so that none acquires it in between.
        downgrade: Some(Sql::prepared(format!(
            "SELECT CASE WHEN {IS_ELSEWHERE} THEN {}::bigint
                 WHEN pg_advisory_lock_shared({{3}}) IS NULL THEN 0
                 ELSE (pg_advisory_unlock({{3}}))::int::bigint END",
            got::ELSEWHERE
        ))),
        // Its commit must not wait with the lock of the sequence: see `tokens`.
        draw: Sql::new(format!(
            "SELECT {LAZY}; {}",
            tokens::draw_block(table, TOKENS_AT_ONCE, IS_ELSEWHERE)
        )),
        probe: Sql::new(format!(
            "SELECT CASE WHEN {IS_MARKED} THEN {NUMBER} ELSE {} END",
            got::ELSEWHERE
        )),
        alive: Sql::prepared(format!("SELECT {}", advisory_alive("{6}", "{3}"))),
        terminate: terminate(&advisory_alive("{6}", "{3}")),
        ..common(
            table,
            4,
            "name",
            &advisory_alive("r.session", "r.session_began"),
            false,
        )
    }
}

/// The number of the session.
const NUMBER: &str = "pg_backend_pid()::bigint";

/// Whether the session has the mark of this client.
const IS_MARKED: &str =
    "current_setting('polylock.session', true) IS NOT DISTINCT FROM encode({2}, 'hex')";

/// Whether a statement runs in another session of the server, or in one that another client has set up since.
const IS_ELSEWHERE: &str = "pg_backend_pid() <> {6}
    OR current_setting('polylock.session', true) IS DISTINCT FROM encode({2}, 'hex')";

/// Marks the session as that of this client, unless it has locks, which this client would be granted once more. They
/// may be those of another client of a pooler, whose mark another user of the session may have reset. A client that
/// has set up the session before, and has no lock, finds at its next request that it has no session.
const MARK: &str = "SELECT set_config('polylock.session', encode({2}, 'hex'), false)
    WHERE NOT EXISTS (SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.objsubid = 1);
    ";

/// A text comes as bytes.
const TEXT: &str = "convert_from({14}, 'UTF8')";

/// A transaction that inserts the rows of a key holds its lock: others need no long wait.
const SET_LOCK_TIMEOUT: &str = "SELECT set_config('lock_timeout', '100', true)";

fn common(table: &str, kind: u8, name: &str, alive: &str, is_pooled: bool) -> SessionStatements {
    let entry = format!("jsonb_build_object({TEXT}, convert_from({{8}}, 'UTF8')::jsonb)");
    SessionStatements {
        start: server_age::texts(table, is_pooled),
        probe: Sql::new(format!("SELECT {NUMBER}")),
        cancel: Sql::new("SELECT pg_cancel_backend({6}::int)::int::bigint"),
        record: Sql::new(format!(
            "SELECT {LAZY}; INSERT INTO {table} AS r (kind, lock_key, name, id, token, label, acquired_at,
                 session, session_began, drawn_by, changed_at)
             VALUES ({kind}, {{1}}, {{10}}, {{7}}, {{13}}, convert_from({{8}}, 'UTF8'), {NOW},
                 {{6}}, {{12}}, {{2}}, {NOW})
             ON CONFLICT (kind, lock_key, slot) DO UPDATE SET id = excluded.id, token = excluded.token,
                 label = excluded.label, acquired_at = excluded.acquired_at,
                 session = excluded.session, session_began = excluded.session_began,
                 drawn_by = excluded.drawn_by, shared = NULL, changed_at = excluded.changed_at
             WHERE r.token < excluded.token"
        )),
        record_shared: Sql::new(format!(
            "SELECT {LAZY}; INSERT INTO {table} AS r (kind, lock_key, name, token, shared, changed_at)
             VALUES ({kind}, {{1}}, {{10}}, {{13}}, {entry}::text, {NOW})
             ON CONFLICT (kind, lock_key, slot) DO UPDATE SET id = NULL,
                 token = greatest(r.token, excluded.token),
                 shared = (coalesce(r.shared, '{{{{}}}}')::jsonb || excluded.shared::jsonb)::text,
                 changed_at = excluded.changed_at
             WHERE r.id IS NULL OR r.token <= excluded.token"
        )),
        readers: Sql::new(server_age::readers(table, kind)),
        forget_readers: Sql::new(format!(
            "SELECT {LAZY}; UPDATE {table} SET shared = nullif((shared::jsonb
                 - ARRAY(SELECT jsonb_object_keys({TEXT}::jsonb)))::text, '{{{{}}}}')
             WHERE kind = {kind} AND lock_key = {{1}} AND slot = 0 AND shared IS NOT NULL"
        )),
        ..of_records(table, (kind, name), alive, (TEXT, NOW))
    }
}

/// Ends a session, if it still holds the lock.
fn terminate(alive: &str) -> Arc<Sql> {
    Sql::new(format!(
        "SELECT pg_terminate_backend({{6}}::int)::int::bigint FROM (SELECT 1) one WHERE {alive} > 0"
    ))
}

/// The settings that session locks rely on, and by which the server ends a silent session. A version
/// without one of them is older than the setting. A pooler that keeps connections may have some of an
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
        'bytea_output')";

/// Settings that make the server end the connection of an unreachable client after the timeout of a
/// session; not every system has them.
pub(crate) fn settings(timeout: Duration) -> Arc<Sql> {
    let (idle, interval, count) = keepalives(timeout);
    Sql::new(format!(
        "SELECT set_config(name, CASE name
             WHEN 'client_connection_check_interval' THEN '1s'
             WHEN 'tcp_user_timeout' THEN ({{11}}::bigint)::text
             WHEN 'tcp_keepalives_idle' THEN '{idle}'
             WHEN 'tcp_keepalives_interval' THEN '{interval}'
             ELSE '{count}' END, false)
         FROM pg_settings WHERE name IN ('client_connection_check_interval', 'tcp_user_timeout',
             'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count')"
    ))
}

/// The seconds without traffic before the server sends probes, the seconds between probes, and their
/// number. Together they are no shorter than the timeout: a holder trusts its session for most of it.
fn keepalives(timeout: Duration) -> (u128, u128, u128) {
    let half = timeout.as_millis().div_ceil(2_000).max(1);
    let interval = half.div_ceil(MAX_KEEPALIVES);
    (half, interval, half.div_ceil(interval))
}

/// Linux sends at most 127.
const MAX_KEEPALIVES: u128 = 100;

fn forget_shared(table: &str, kind: u8) -> String {
    format!(
        "UPDATE {table} SET shared = nullif((shared::jsonb - {TEXT})::text, '{{{{}}}}')
         WHERE kind = {kind} AND lock_key = {{1}} AND shared IS NOT NULL"
    )
}

/// A copy of the table in another database has the records of the original, and not its sessions.
const DATABASE: &str = "(SELECT oid FROM pg_database WHERE datname = current_database())";

/// A session holds its row as long as the transaction lasts in which it locked the row.
fn row_held(session: &str, began: &str) -> String {
    row_session(session, began, "")
}

/// Of sessions of other users, the server shows only that they exist, and without `track_activities` no
/// transactions. These may hold the row, and are not ended.
fn row_alive(session: &str, began: &str) -> String {
    let hidden = "a.backend_start IS NULL OR a.state = 'disabled' OR";
    row_session(session, began, hidden)
}

fn row_session(session: &str, began: &str, or: &str) -> String {
    format!(
        "(SELECT count(*) FROM pg_stat_activity a WHERE a.pid = {session} AND a.datid = {DATABASE}
             AND ({or} (date_part('epoch', a.xact_start) * 1000000)::bigint = {began}))"
    )
}

/// The server lists the holders of numbers; a record keeps that where a row lock has its time.
fn advisory_alive(session: &str, number: &str) -> String {
    format!(
        "(SELECT count(*) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted
             AND l.pid = {session} AND l.objsubid = 1
             AND l.database = {DATABASE}
             AND l.classid::bigint = (({number}) >> 32) & 4294967295
             AND l.objid::bigint = ({number}) & 4294967295)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_of_the_server_last_for_the_whole_timeout() {
        for millis in [
            2_000, 3_000, 9_999, 30_000, 200_000, 201_000, 250_001, 3_600_000,
        ] {
            let (idle, interval, count) = keepalives(Duration::from_millis(millis));
            let lasts = (idle + interval * count) * 1_000;
            assert!(lasts >= u128::from(millis), "{millis} ms: {lasts}");
            assert!(lasts <= u128::from(millis) * 2, "{millis} ms: {lasts}");
            assert!(count <= MAX_KEEPALIVES, "{millis} ms: {count}");
        }
    }
}
