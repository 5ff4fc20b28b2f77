//! The statements of `mode=row` and `mode=advisory` for MySQL and MariaDB.
//!
//! They are sent as text, several in one message: each is a transaction of its own unless one is
//! open, and sees what was committed when it begins.

use std::sync::Arc;

use super::server_age;
use crate::session::texts::{Draw, Texts, got};
use crate::wire::{Flavour, Sql};

pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// The time that this very statement runs at; `NOW()` is when it began.
const BEGIN_CLOCK: &str = "SET @polylock_begun = SYSDATE(6)";
const ELAPSED: &str = "CAST(TIMESTAMPDIFF(MICROSECOND, @polylock_begun, SYSDATE(6)) AS SIGNED)";

/// Longest time-outs that the server takes, in seconds.
const LONGEST: &str = "86400";

/// Row locks: the row of kind 2 is locked, and the one of kind 3 is its record.
pub(crate) fn row(table: &str, flavour: Flavour) -> Texts {
    let share = match flavour {
        Flavour::MariaDb => "LOCK IN SHARE MODE",
        Flavour::MySql => "FOR SHARE",
    };
    let take = |strength: &str, waits: bool| {
        let (set, suffix, elapsed) = if waits {
            let wait = format!("LEAST(GREATEST(CEIL({{4}} / 1000), 1), {LONGEST})");
            // A setting takes no expression on some servers, and a variable on all.
            let set = format!(
                "{BEGIN_CLOCK}; SET @polylock_wait = CAST({wait} AS SIGNED);
                 SET SESSION innodb_lock_wait_timeout = @polylock_wait;"
            );
            (set, "", ELAPSED)
        } else {
            (String::new(), " NOWAIT", "0")
        };
        Arc::new(Sql::new(format!(
            "{set} START TRANSACTION;
             SELECT {} FROM {table} WHERE kind = 2 AND lock_key = {{1}} {strength}{suffix};
             {}",
            got::TAKEN,
            record(table, 3, elapsed, "1")
        )))
    };
    let plain = || Arc::new(Sql::new("ROLLBACK"));
    // Before the row is free: whoever comes next may keep the record locked for long.
    let forgetful = |forget: &str| Arc::new(Sql::new(format!("{forget}; COMMIT")));
    // An insert waits for whoever has locked the row that is there. That is the holder, who may need
    // the connection that waits: rows that can be seen are left alone.
    let seed = format!(
        "{SHORTLY}; INSERT INTO {table} (kind, lock_key, last_token, changed_at)
         SELECT kinds.kind, {{1}}, COALESCE((SELECT floors.last_token FROM {table} floors
             WHERE floors.kind = 0 AND floors.lock_key = ''), 0), {NOW}
         FROM (SELECT 2 AS kind UNION ALL SELECT 3) kinds
         WHERE NOT EXISTS (SELECT 1 FROM {table} there
             WHERE there.kind = kinds.kind AND there.lock_key = {{1}})
         ON DUPLICATE KEY UPDATE {table}.version = {table}.version"
    );
    Texts {
        try_take: [take("FOR UPDATE", false), take(share, false)],
        wait_take: [take("FOR UPDATE", true), take(share, true)],
        undo: [plain(), plain()],
        release: [plain(), plain()],
        release_recorded: [
            forgetful(&forget(table, 3)),
            forgetful(&forget_shared(table, 3)),
        ],
        seed: Arc::new(Sql::new(seed)),
        ..common(table, 3, "lock_key", "TRUE", flavour)
    }
}

/// Named locks of the server: what is locked is a hash, and the row of kind 4 is its record.
pub(crate) fn advisory(table: &str, flavour: Flavour) -> Texts {
    let lock = |wait: &str| {
        let (taken, not) = (got::TAKEN, got::NOT);
        let (elsewhere, interrupted) = (got::ELSEWHERE, got::INTERRUPTED);
        format!(
            "IF(CONNECTION_ID() = {{6}}, CASE GET_LOCK({NAME}, {wait})
                 WHEN 1 THEN {taken} WHEN 0 THEN {not} ELSE {interrupted} END, {elsewhere})"
        )
    };
    let same_name = "COALESCE(r.name = {10}, 1)";
    let try_take = || {
        let record = record(table, 4, "0", same_name);
        Arc::new(Sql::new(format!("SELECT {}; {record}", lock("0"))))
    };
    let wait_take = || {
        let wait = match flavour {
            Flavour::MariaDb => "{4} / 1000",
            // Rounds to whole seconds, and so to none.
            Flavour::MySql => "CEIL({4} / 1000)",
        };
        let here = format!("@polylock_got = {} AND name = {{10}}", got::TAKEN);
        Arc::new(Sql::new(format!(
            "{BEGIN_CLOCK}; SET @polylock_got = {}; {};
             SELECT CAST(@polylock_got AS SIGNED); {}",
            lock(wait),
            draw(table, 4, &here),
            record(table, 4, ELAPSED, same_name)
        )))
    };
    let unlock = format!("SELECT CAST(COALESCE(RELEASE_LOCK({NAME}), 0) AS SIGNED)");
    let plain = || Arc::new(Sql::new(&unlock));
    let recorded = Arc::new(Sql::new(format!("{unlock}; {}", forget(table, 4))));
    let seed = format!(
        "{SHORTLY}; INSERT INTO {table} (kind, lock_key, name, last_token, changed_at)
         SELECT 4, {{1}}, {{10}}, COALESCE((SELECT floors.last_token FROM {table} floors
             WHERE floors.kind = 0 AND floors.lock_key = ''), 0), {NOW}
         ON DUPLICATE KEY UPDATE {table}.version = {table}.version"
    );
    Texts {
        try_take: [try_take(), try_take()],
        wait_take: [wait_take(), wait_take()],
        undo: [plain(), plain()],
        release: [plain(), plain()],
        release_recorded: [Arc::clone(&recorded), recorded],
        seed: Arc::new(Sql::new(seed)),
        ..common(table, 4, "name", "name = {10}", flavour)
    }
}

/// Whoever makes the rows of a key in a transaction of its own has locked it, and others need not wait
/// to know.
const SHORTLY: &str = "SET SESSION innodb_lock_wait_timeout = 1";

/// A name is text to the server, whatever the character set of the connection.
const NAME: &str = "CONVERT({3} USING utf8mb4)";

/// Reads the record of a lock that may be held now.
fn record(table: &str, kind: u8, elapsed: &str, same_name: &str) -> String {
    format!(
        "SELECT r.kind IS NOT NULL, COALESCE(r.drawn_by = {{2}}, 0), COALESCE(r.token, 0),
             COALESCE(r.last_token, 0), {elapsed}, CAST(CONNECTION_ID() AS SIGNED), 0, {same_name}
         FROM (SELECT 1) one LEFT JOIN {table} r ON r.kind = {kind} AND r.lock_key = {{1}}"
    )
}

fn common(table: &str, kind: u8, name: &str, same_name: &str, flavour: Flavour) -> Texts {
    let columns = format!(
        "r.{name}, r.id, r.token, r.label, r.acquired_at, r.session, r.session_began,
         r.drawn_by, r.shared, IF(r.id IS NULL, 0, {}), r.broken_id",
        alive("r.drawn_by")
    );
    // Time-outs of the server that end a transaction or a wait before its time.
    let unlimited = match flavour {
        Flavour::MariaDb => {
            "SET SESSION max_statement_time = 0, idle_transaction_timeout = 0,
                 idle_readonly_transaction_timeout = 0, idle_write_transaction_timeout = 0"
        }
        Flavour::MySql => "SET SESSION max_execution_time = 0",
    };
    let label = "CONVERT({8} USING utf8mb4)";
    let path = "CONCAT('$.\"', CONVERT({14} USING utf8mb4), '\"')";
    let nothing = || Arc::new(Sql::new("SELECT 1"));
    Texts {
        // While the server knows this name, the session is there.
        setup: Arc::new(Sql::new(format!(
            "SET @polylock_timeout = CAST(LEAST(GREATEST(CEIL({{11}} / 1000), 1), {LONGEST})
                 AS SIGNED);
             SET SESSION wait_timeout = @polylock_timeout; {unlimited};
             SELECT CAST(GET_LOCK({}, 0) AS SIGNED); {}",
            session_name("{2}"),
            server_age::record(table)
        ))),
        start: server_age::texts(table),
        setup_more: None,
        try_take: [nothing(), nothing()],
        wait_take: [nothing(), nothing()],
        undo: [nothing(), nothing()],
        release: [nothing(), nothing()],
        release_recorded: [nothing(), nothing()],
        downgrade: None,
        probe: Arc::new(Sql::new("SELECT CAST(CONNECTION_ID() AS SIGNED)")),
        cancel: Arc::new(Sql::new("KILL QUERY {6}")),
        seed: nothing(),
        claim: None,
        read_record: Arc::new(Sql::new(record(table, kind, "0", "1"))),
        draw: Draw::LastId(Arc::new(Sql::new(draw(
            table,
            kind,
            &format!("{same_name} AND ({{5}} < 0 OR last_token = {{5}})"),
        )))),
        record: Arc::new(Sql::new(format!(
            "UPDATE {table} SET id = {{7}}, token = {{13}}, label = {label},
                 acquired_at = {NOW}, session = {{6}}, session_began = {{12}}, shared = NULL,
                 changed_at = {NOW}
             WHERE kind = {kind} AND lock_key = {{1}} AND drawn_by = {{2}}"
        ))),
        record_shared: Arc::new(Sql::new(format!(
            "UPDATE {table} SET id = NULL,
                 shared = JSON_SET(COALESCE(shared, '{{{{}}}}'), {path}, JSON_EXTRACT({label}, '$')),
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
        alive: Arc::new(Sql::new(format!("SELECT {}", alive("{2}")))),
        mark_broken: Arc::new(Sql::new(format!(
            "UPDATE {table} SET broken_id = {{7}},
                 broken_reason = CONVERT({{14}} USING utf8mb4), changed_at = {NOW}
             WHERE kind = {kind} AND lock_key = {{1}}"
        ))),
        terminate: Arc::new(Sql::new("KILL {6}")),
    }
}

/// Assignments are made one after the other, and each sees what those before it have set.
fn draw(table: &str, kind: u8, condition: &str) -> String {
    format!(
        "UPDATE {table} SET token = GREATEST(last_token + 1, {NOW}),
             last_token = LAST_INSERT_ID(token + {{9}}), drawn_by = {{2}},
             id = IF({{9}} = 0, NULL, {{7}}), label = CONVERT({{8}} USING utf8mb4),
             acquired_at = {NOW}, session = {{6}}, session_began = {{12}},
             shared = IF({{9}} = 0, shared, NULL), version = version + 1, changed_at = {NOW}
         WHERE kind = {kind} AND lock_key = {{1}} AND {condition}"
    )
}

fn forget(table: &str, kind: u8) -> String {
    format!("UPDATE {table} SET id = NULL WHERE kind = {kind} AND lock_key = {{1}} AND id = {{7}}")
}

fn forget_shared(table: &str, kind: u8) -> String {
    format!(
        "UPDATE {table} SET shared = NULLIF(CAST(JSON_REMOVE(shared,
             CONCAT('$.\"', CONVERT({{14}} USING utf8mb4), '\"')) AS CHAR), '{{{{}}}}')
         WHERE kind = {kind} AND lock_key = {{1}} AND shared IS NOT NULL"
    )
}

pub(super) fn session_name(id: &str) -> String {
    format!("CONCAT('polylock-', LOWER(HEX({id})))")
}

fn alive(id: &str) -> String {
    format!(
        "CAST(COALESCE(IS_USED_LOCK({}) IS NOT NULL, 0) AS SIGNED)",
        session_name(id)
    )
}
