//! Starts of the server, and the sessions on them: see [`crate::session::server_age`].

use super::NOW;
use super::session::session_name;
use crate::session::statements::StartTexts;
use crate::wire::Sql;

/// The start of the server, by a name that no other start has: the second when it began, by a
/// difference that is the same whatever its clock is set to, and behind a number that MariaDB draws
/// when it starts. While the clock is behind the start, the uptime is a negative number, and the server
/// shows it as the unsigned one of the same bits. Each server reads its own comments.
pub(crate) const START: &str = "CONCAT(/*M!100000 SUBSTRING(UUID(), 20) */ /*!80000 @@server_uuid */,
    '/', COALESCE((SELECT CAST(UNIX_TIMESTAMP() AS SIGNED) - CAST(CAST(VARIABLE_VALUE AS UNSIGNED) AS SIGNED)
        FROM /*M!100000 information_schema.GLOBAL_STATUS */ /*!80000 performance_schema.global_status */
        WHERE VARIABLE_NAME IN ('Uptime', 'UPTIME')), 0))";

/// The sessions of the server. The list that MySQL has in `information_schema` cannot be read while any
/// client runs a statement whose text is not UTF-8.
const PROCESS_LIST: &str =
    "/*M!100000 information_schema.PROCESSLIST */ /*!80000 performance_schema.processlist */";

/// Whether the server takes no writes of most users, as the former primary after a switchover. MariaDB
/// 12 uses words for the values.
pub(super) const IS_READ_ONLY: &str =
    "CAST(CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF') AS SIGNED)";

/// Records a session, if the start of the server is admitted for its timeout. The returned row has the
/// number of the session, whether it is recorded, the ends of its connection, and whether the server is
/// read-only; the server does not report its own address.
pub(super) fn record(table: &str) -> String {
    format!(
        "SET @polylock_start = {START};
         INSERT INTO {table} (kind, lock_key, name, ttl, session, changed_at)
         SELECT 6, {{2}}, s.name, {{11}}, CONNECTION_ID(), {NOW} FROM {table} s
         WHERE s.kind = 7 AND s.lock_key = '' AND s.name = @polylock_start AND s.ttl >= {{11}};
         SELECT CAST(CONNECTION_ID() AS SIGNED),
             (SELECT COUNT(*) FROM {table} r WHERE r.kind = 6 AND r.lock_key = {{2}}),
             (SELECT p.host FROM {PROCESS_LIST} p WHERE p.id = CONNECTION_ID()),
             NULL, CAST(@@port AS SIGNED), {IS_READ_ONLY}"
    )
}

pub(super) fn texts(table: &str, sessions: &str) -> StartTexts {
    let sql = |text: String| Sql::new(text);
    let label = "CONVERT({8} USING utf8mb4)";
    StartTexts {
        read: sql(read(table)),
        lineage: sql(LINEAGE.to_owned()),
        // Assignments run one after the other, and each sees the results of earlier ones. No name
        // returns at the next version.
        admit: sql(format!(
            "SET @polylock_start = {START};
             INSERT INTO {table} (kind, lock_key, name, ttl, label, changed_at)
             VALUES (7, '', @polylock_start, {{11}}, {label}, {NOW})
             ON DUPLICATE KEY UPDATE
                 ttl = IF(name = @polylock_start, GREATEST(ttl, {{11}}),
                     IF(name = {{14}} AND version = {{5}}, {{11}}, ttl)),
                 label = IF(name = @polylock_start OR name = {{14}} AND version = {{5}},
                     {label}, label),
                 version = IF(name <> @polylock_start AND name = {{14}} AND version = {{5}},
                     version + 1, version),
                 name = IF(name = {{14}} AND version = {{5}} + 1, @polylock_start, name);
             {}",
            record(table)
        )),
        // A boot clock that is behind what was noted is another one.
        witness: sql(format!(
            "SET @polylock_start = {START};
             SET @polylock_machine = {{10}};
             SET @polylock_version = COALESCE((SELECT s.version FROM {table} s
                 WHERE s.kind = 7 AND s.lock_key = ''), 0);
             INSERT INTO {table} (kind, lock_key, name, acquired_at, version, changed_at)
             SELECT 8, @polylock_machine, @polylock_start, {{12}}, @polylock_version, {NOW}
             FROM (SELECT 1) one
             WHERE @polylock_machine IS NOT NULL
             ON DUPLICATE KEY UPDATE
                 changed_at = IF({table}.name = @polylock_start
                     AND {table}.version = @polylock_version AND {table}.acquired_at <= {{12}},
                     {table}.changed_at, {NOW}),
                 acquired_at = IF({table}.name = @polylock_start
                     AND {table}.version = @polylock_version AND {table}.acquired_at <= {{12}},
                     {table}.acquired_at, {{12}}),
                 version = @polylock_version,
                 name = @polylock_start"
        )),
        forget: sql(format!(
            "DELETE FROM {table} WHERE kind = 6 AND lock_key = {{2}}"
        )),
        // A session that is there is no ended one, whatever start it was recorded on.
        sweep: sql(format!(
            "SET @polylock_start = {START};
             DELETE d FROM {table} d JOIN {table} s ON s.kind = 7 AND s.lock_key = ''
             WHERE s.name = @polylock_start
                 AND (d.kind = 8 OR d.kind = 6 AND IS_USED_LOCK({}) IS NULL
                     OR d.kind IN (3, 4) AND d.shared IS NULL AND d.changed_at < {NOW} - 60000000
                         AND (d.id IS NULL OR d.drawn_by IS NULL OR IS_USED_LOCK({}) IS NULL))",
            session_name(sessions, "d.lock_key"),
            session_name(sessions, "d.drawn_by")
        )),
    }
}

/// Whether the start of the server is admitted, or none ever was, as an expression that needs
/// `@polylock_start`.
pub(crate) fn is_admitted(table: &str) -> String {
    format!(
        "(SELECT COUNT(*) FROM (SELECT 1) one LEFT JOIN {table} s ON s.kind = 7 AND s.lock_key = ''
             WHERE COALESCE(s.name = @polylock_start, 1))"
    )
}

/// Reads the records of shared holders, and after them the sessions: those of all readers that live
/// are among them, because a session is recorded before its readers.
pub(super) fn readers(table: &str, kind: u8) -> String {
    format!(
        "SET @polylock_start = {START};
         SELECT r.lock_key, r.shared FROM {table} r
             JOIN {table} s ON s.kind = 7 AND s.lock_key = '' AND s.name = @polylock_start
         WHERE r.kind = {kind} AND r.slot = 0 AND r.shared IS NOT NULL;
         SELECT lock_key FROM {table} WHERE kind = 6 AND name = @polylock_start"
    )
}

pub(crate) fn read(table: &str) -> String {
    format!(
        "SET @polylock_start = {START};
         SELECT CAST(@polylock_start AS BINARY), s.name, COALESCE(s.ttl, 0),
             COALESCE(s.label, ''), CAST(COALESCE((SELECT MAX(o.ttl) FROM {table} o
                 WHERE o.kind = 6 AND o.name = s.name), 0) AS SIGNED),
             CAST(@@GLOBAL.innodb_flush_log_at_trx_commit = 1
                 AND (@@GLOBAL.log_bin = 0 OR @@GLOBAL.sync_binlog = 1) AS SIGNED),
             CAST(COALESCE(LEAST({{12}} - w.acquired_at, {NOW} - w.changed_at), 0) AS SIGNED),
             CAST(COALESCE(s.version, 0) AS SIGNED)
         FROM (SELECT 1) one
             LEFT JOIN {table} s ON s.kind = 7 AND s.lock_key = ''
             LEFT JOIN {table} w ON w.kind = 8 AND w.lock_key = {{10}} AND w.name = @polylock_start
                 AND w.version = s.version"
    )
}

/// The copy of the data that the server has: a replica that takes over is another server.
pub(crate) const LINEAGE: &str = "SELECT /*M!100000 CONCAT(@@hostname, '/', @@port, '/', @@server_id) */ /*!80000 @@server_uuid */";
