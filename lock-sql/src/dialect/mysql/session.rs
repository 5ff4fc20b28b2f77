//! The statements of `mode=row` and `mode=advisory` for MySQL and MariaDB.
//!
//! An attempt for a MariaDB advisory lock and a release without a record are prepared. Other statements
//! are sent as text, several in one message. Each is a transaction of its own unless one is open, and
//! sees what was committed when it begins.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{NOW, server_age, tokens};
use crate::session::statements::{SessionStatements, forget_holder, got, of_records};
use crate::table::TOKENS_AT_ONCE;
use crate::wire::{Flavor, Sql, hex};

/// The current time inside of a statement; `NOW()` is the time when the statement began.
const BEGIN_CLOCK: &str = "SET @polylock_begun = SYSDATE(6)";
const ELAPSED: &str = "CAST(TIMESTAMPDIFF(MICROSECOND, @polylock_begun, SYSDATE(6)) AS SIGNED)";

/// Longest time-outs that the server takes, in seconds.
const MAX_TIMEOUT_SECONDS: &str = "86400";

/// Row locks: the row of kind 2 is locked, and the one of kind 3 names the holder. `sessions` begins the
/// [names](name_prefix) of the sessions.
pub(crate) fn row(table: &str, sessions: &str, flavor: Flavor) -> SessionStatements {
    let share = match flavor {
        Flavor::MariaDb => "LOCK IN SHARE MODE",
        Flavor::MySql => "FOR SHARE",
    };
    let (draw, token) = tokens::draw(table, flavor);
    let here = is_same_session(sessions);
    let block = tokens::draw_block(table, TOKENS_AT_ONCE, flavor, &here);
    // The transaction lasts as long as the lock, and other keys draw tokens meanwhile.
    let (draw, block) = match flavor {
        Flavor::MariaDb => (draw, block),
        Flavor::MySql => (
            tokens::in_savepoint(&draw),
            tokens::in_savepoint(&format!("{block};")),
        ),
    };
    let token = format!("CAST(IF({here}, {token}, {}) AS SIGNED)", got::ELSEWHERE);
    // A statement that opens the counter for a write blocks `FLUSH TABLES WITH READ LOCK` while it waits. So does
    // `FOR UPDATE`, but not a shared lock.
    let begin = |strength: &str, elapsed: &str| {
        let row = format!("FROM {table} WHERE kind = 2 AND lock_key = {{1}} AND slot = 0");
        let (taken, grant) = (
            got::TAKEN,
            format!("{token}, {elapsed}, CAST(CONNECTION_ID() AS SIGNED), 0"),
        );
        if flavor == Flavor::MariaDb && !strength.starts_with(share) {
            return format!("START TRANSACTION; SELECT {grant}, {taken} {row} {strength}");
        }
        format!("START TRANSACTION; SELECT {taken} {row} {strength}; {draw} SELECT {grant}")
    };
    let try_take = |strength: &str| Sql::new(begin(&format!("{strength} NOWAIT"), "0"));
    let wait_take = |strength: &str| {
        let wait = format!("LEAST(GREATEST(CEIL({{4}} / 1000), 1), {MAX_TIMEOUT_SECONDS})");
        // Some servers accept no expression in a setting; all accept a variable.
        Sql::new(format!(
            "{BEGIN_CLOCK}; SET @polylock_wait = CAST({wait} AS SIGNED);
             SET SESSION innodb_lock_wait_timeout = @polylock_wait; {}",
            begin(strength, ELAPSED)
        ))
    };
    // The row is released first, so that no waiter waits for the answer. A session to which a proxy has moved the
    // connection has no transaction of this client.
    let rollback = format!(
        "ROLLBACK; SELECT CAST(IF({here}, 1, {}) AS SIGNED)",
        got::ELSEWHERE
    );
    let plain = || Sql::new(&rollback);
    let forget = |forget: &str| Sql::new(format!("{rollback}; {forget}"));
    // An insert waits for the holder of the existing row, which may need the waiting connection: visible
    // rows are skipped.
    let seed = format!(
        "{SET_LOCK_TIMEOUT}; INSERT INTO {table} (kind, lock_key, changed_at)
         SELECT 2, {{1}}, {NOW} FROM (SELECT 1) one
         WHERE NOT EXISTS (SELECT 1 FROM {table} there
             WHERE there.kind = 2 AND there.lock_key = {{1}} AND there.slot = 0)
         ON DUPLICATE KEY UPDATE {table}.version = {table}.version"
    );
    SessionStatements {
        try_take: [try_take("FOR UPDATE"), try_take(share)],
        wait_take: [wait_take("FOR UPDATE"), wait_take(share)],
        release: [plain(), plain()],
        release_recorded: [
            forget(&forget_holder(table, 3)),
            forget(&forget_shared(table, 3)),
        ],
        seed: Sql::new(seed),
        draw: Sql::new(block),
        ..common(
            table,
            3,
            "lock_key",
            flavor,
            sessions,
            [
                &alive(sessions, "r.drawn_by"),
                &is_recorded(table, sessions, "{2}"),
            ],
        )
    }
}

/// Named locks of the server: a hash is locked, and the row of kind 4 names the holder.
pub(crate) fn advisory(table: &str, sessions: &str, flavor: Flavor) -> SessionStatements {
    // In one statement, a wait would keep the counter open for a write, and block `FLUSH TABLES WITH
    // READ LOCK`. An attempt does not wait.
    let (not, elsewhere, interrupted) = (got::NOT, got::ELSEWHERE, got::INTERRUPTED);
    let here = is_same_session(sessions);
    let (draw, token) = tokens::draw(table, flavor);
    let draw = match flavor {
        Flavor::MariaDb => draw,
        Flavor::MySql => format!("START TRANSACTION; {draw} ROLLBACK;"),
    };
    let take = |wait: &str, set: &str, elapsed: &str| {
        Sql::new(format!(
            "{set}SET @polylock_got = IF({here}, CASE GET_LOCK({NAME}, {wait})
                 WHEN 1 THEN 1 WHEN 0 THEN {not} ELSE {interrupted} END, {elsewhere}); {draw}
             SELECT CAST(IF(@polylock_got = 1, {token}, @polylock_got) AS SIGNED), {elapsed},
                 CAST(CONNECTION_ID() AS SIGNED), 0"
        ))
    };
    let wait = match flavor {
        Flavor::MariaDb => "{4} / 1000",
        // Rounds to whole seconds, and so to none.
        Flavor::MySql => "CEIL({4} / 1000)",
    };
    let try_take = || match flavor {
        Flavor::MariaDb => Sql::prepared(format!(
            "SELECT CAST(IF({here}, CASE GET_LOCK({NAME}, 0) WHEN 1 THEN {token}
                 WHEN 0 THEN {not} ELSE {interrupted} END, {elsewhere}) AS SIGNED), 0,
                 CAST(CONNECTION_ID() AS SIGNED), 0"
        )),
        Flavor::MySql => take("0", "", "0"),
    };
    let wait_take = || take(wait, &format!("{BEGIN_CLOCK}; "), ELAPSED);
    let unlock = format!(
        "SELECT CAST(IF({here}, COALESCE(RELEASE_LOCK({NAME}), 0), {elsewhere}) AS SIGNED)"
    );
    let plain = || Sql::prepared(&unlock);
    // The name of the lock in a copy of the record is that of the original.
    let recorded = format!(
        "{} * {}",
        holds(HASHED, "r.session"),
        alive(sessions, "r.drawn_by")
    );
    let clear = Sql::new(forget_holder(table, 4));
    let draw = tokens::draw_block(table, TOKENS_AT_ONCE, flavor, &here);
    let draw = match flavor {
        Flavor::MariaDb => draw,
        Flavor::MySql => format!("START TRANSACTION; {draw}; ROLLBACK"),
    };
    SessionStatements {
        try_take: [try_take(), try_take()],
        wait_take: [wait_take(), wait_take()],
        release: [plain(), plain()],
        clear_record: Some([Arc::clone(&clear), clear]),
        draw: Sql::new(draw),
        ..common(
            table,
            4,
            "name",
            flavor,
            sessions,
            [&recorded, &holds(NAME, "{6}")],
        )
    }
}

/// A transaction that inserts the rows of a key holds its lock: others need no long wait.
const SET_LOCK_TIMEOUT: &str = "SET SESSION innodb_lock_wait_timeout = 1";

/// A name is text to the server, whatever the character set of the connection.
const NAME: &str = "CONVERT({3} USING utf8mb4)";

/// As is every text.
const TEXT: &str = "CONVERT({14} USING utf8mb4)";

/// The place of a shared holder in a record.
const PATH: &str = "CONCAT('$.\"', CONVERT({14} USING utf8mb4), '\"')";

/// The name of a record.
const HASHED: &str = "CONCAT('polylock:', LOWER(HEX(r.lock_key)))";

fn common(
    table: &str,
    kind: u8,
    name: &str,
    flavor: Flavor,
    sessions: &str,
    [recorded, alive]: [&str; 2],
) -> SessionStatements {
    // Time-outs of the server that end a transaction or a wait before its time.
    let unlimited = match flavor {
        Flavor::MariaDb => {
            "SET SESSION max_statement_time = 0, idle_transaction_timeout = 0,
                 idle_readonly_transaction_timeout = 0, idle_write_transaction_timeout = 0"
        }
        Flavor::MySql => "SET SESSION max_execution_time = 0",
    };
    let label = "CONVERT({8} USING utf8mb4)";
    SessionStatements {
        // While the server knows this name, the session exists.
        setup: Sql::new(format!(
            "SET @polylock_timeout = CAST(LEAST(GREATEST(CEIL({{11}} / 1000), 1), {MAX_TIMEOUT_SECONDS})
                 AS SIGNED);
             SET SESSION wait_timeout = @polylock_timeout; {unlimited};
             SELECT CAST(GET_LOCK({}, 0) AS SIGNED); {}; {}",
            session_name(sessions, "{2}"),
            tokens::raise(table, flavor),
            server_age::record(table)
        )),
        start: server_age::texts(table, sessions),
        probe: Sql::new(format!(
            "SELECT CAST(IF({}, {{6}}, 0) AS SIGNED), {}",
            is_same_session(sessions),
            server_age::IS_READ_ONLY
        )),
        cancel: Sql::new("KILL QUERY {6}"),
        // Assignments are made one after the other, and each sees what those before it have set.
        record: Sql::new(format!(
            "INSERT INTO {table} (kind, lock_key, name, id, token, label, acquired_at, session,
                 session_began, drawn_by, changed_at)
             VALUES ({kind}, {{1}}, {{10}}, {{7}}, {{13}}, {label}, {NOW}, {{6}}, {{12}}, {{2}}, {NOW})
             ON DUPLICATE KEY UPDATE id = IF(token < {{13}}, {{7}}, id),
                 label = IF(token < {{13}}, {label}, label),
                 acquired_at = IF(token < {{13}}, {NOW}, acquired_at),
                 session = IF(token < {{13}}, {{6}}, session),
                 session_began = IF(token < {{13}}, {{12}}, session_began),
                 drawn_by = IF(token < {{13}}, {{2}}, drawn_by),
                 shared = IF(token < {{13}}, NULL, shared), changed_at = {NOW},
                 token = GREATEST(token, {{13}})"
        )),
        record_shared: Sql::new(format!(
            "INSERT INTO {table} (kind, lock_key, name, token, shared, changed_at)
             VALUES ({kind}, {{1}}, {{10}}, {{13}},
                 JSON_SET('{{{{}}}}', {PATH}, JSON_EXTRACT({label}, '$')), {NOW})
             ON DUPLICATE KEY UPDATE
                 shared = IF(id IS NULL OR token <= {{13}}, JSON_SET(COALESCE(shared, '{{{{}}}}'), {PATH},
                     JSON_EXTRACT({label}, '$')), shared),
                 id = IF(token <= {{13}}, NULL, id), token = GREATEST(token, {{13}}),
                 changed_at = {NOW}"
        )),
        readers: Sql::new(server_age::readers(table, kind)),
        // A merge removes the names whose value is null.
        forget_readers: Sql::new(format!(
            "UPDATE {table} SET shared = NULLIF(CAST(JSON_MERGE_PATCH(shared, {TEXT}) AS CHAR), '{{{{}}}}')
             WHERE kind = {kind} AND lock_key = {{1}} AND slot = 0 AND shared IS NOT NULL"
        )),
        alive: Sql::prepared(format!("SELECT {alive}")),
        // `KILL` takes no subquery. A session without the lock is left alone: none has the number 0.
        terminate: Sql::new(format!(
            "SET @polylock_session = IF({alive} > 0, {{6}}, 0); KILL @polylock_session"
        )),
        ..of_records(table, (kind, name), recorded, (TEXT, NOW))
    }
}

fn forget_shared(table: &str, kind: u8) -> String {
    format!(
        "UPDATE {table} SET shared = NULLIF(CAST(JSON_REMOVE(shared, {PATH}) AS CHAR), '{{{{}}}}')
         WHERE kind = {kind} AND lock_key = {{1}} AND slot = 0 AND shared IS NOT NULL"
    )
}

/// What the names of the sessions of a table begin with: names are those of the whole server, and the
/// records of a copy of the table have the ids of sessions of the original. With an id, it is a name of 54
/// letters; 64 are possible.
pub(crate) fn name_prefix(scope: &str) -> String {
    let hash = Sha256::digest(scope.as_bytes());
    format!("polylock-{}-", hex(&hash[..6]))
}

/// The name that a session with an id has locked, as an expression.
pub(super) fn session_name(sessions: &str, id: &str) -> String {
    format!("CONCAT('{sessions}', LOWER(HEX({id})))")
}

/// Whether a session has a named lock, as an expression.
fn holds(name: &str, session: &str) -> String {
    format!("CAST(COALESCE(IS_USED_LOCK({name}) = {session}, 0) AS SIGNED)")
}

/// Whether a session exists, as an expression.
fn alive(sessions: &str, id: &str) -> String {
    format!(
        "CAST(COALESCE(IS_USED_LOCK({}) IS NOT NULL, 0) AS SIGNED)",
        session_name(sessions, id)
    )
}

/// Whether a statement runs in the session that was admitted, as an expression. A proxy may move an idle
/// connection to another server. Numbers of sessions repeat there, and no session has locked the name.
fn is_same_session(sessions: &str) -> String {
    format!(
        "CONNECTION_ID() = {{6}} AND IS_USED_LOCK({}) = {{6}}",
        session_name(sessions, "{2}")
    )
}

/// Whether a session exists, and the record of the key has its lease, as an expression: the session may have
/// released the lock, and hold the one of another key.
fn is_recorded(table: &str, sessions: &str, id: &str) -> String {
    format!(
        "{} * (SELECT COUNT(*) FROM {table} h WHERE h.kind = 3 AND h.lock_key = {{1}} AND h.slot = 0
             AND (h.id = {{7}} OR JSON_CONTAINS_PATH(h.shared, 'one', {PATH})))",
        alive(sessions, id)
    )
}
