//! Starts of the server, and the sessions on them: see [`crate::session::server_age`].

use super::NOW;
use crate::session::statements::{StartTexts, got};
use crate::wire::Sql;

/// The start of the server. Its clock makes it a name that no other start has, and nothing more.
const START: &str = "convert_to(((date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint)::text, 'UTF8')";

/// These writes must survive the power loss that they are for, so a commit waits for the disk even with
/// `synchronous_commit` off. It waits for no standby then: a missing standby would keep sessions from
/// opening.
const DURABLY: &str = "SELECT set_config('synchronous_commit', 'local', true)
    WHERE current_setting('synchronous_commit') = 'off'";

/// Records a session, if the start of the server is admitted for its timeout; the returned row has
/// the number of the session, whether it is recorded, and the ends of its connection. Behind a
/// pooler the number soon belongs to another client. `is_ours` says whether this client may use the session;
/// otherwise [`ELSEWHERE`](got::ELSEWHERE) stands in place of the number.
pub(super) fn record(table: &str, is_pooled: bool, is_ours: &str) -> String {
    let session = if is_pooled { "0" } else { "pg_backend_pid()" };
    format!(
        "{DURABLY};
         INSERT INTO {table} (kind, lock_key, name, ttl, session, changed_at)
         SELECT 6, {{2}}, s.name, {{11}}, {session}, {NOW} FROM {table} s
         WHERE s.kind = 7 AND s.lock_key = '' AND s.name = {START} AND s.ttl >= {{11}} AND {is_ours};
         SELECT CASE WHEN {is_ours} THEN pg_backend_pid()::bigint ELSE {} END,
             (SELECT count(*) FROM {table} WHERE kind = 6 AND lock_key = {{2}}),
             host(inet_client_addr()) || ':' || inet_client_port(),
             host(inet_server_addr()), inet_server_port()::bigint",
        got::ELSEWHERE
    )
}

/// Whether the session is recorded on the start of the server, as an expression.
pub(super) fn is_recorded(table: &str) -> String {
    format!(
        "(SELECT count(*) FROM {table} o
             WHERE o.kind = 6 AND o.lock_key = {{2}} AND o.name = {START})"
    )
}

/// Whether the start of the server is admitted, or none ever was, as an expression.
pub(crate) fn is_admitted(table: &str) -> String {
    format!(
        "(SELECT count(*) FROM (SELECT 1) one LEFT JOIN {table} s ON s.kind = 7 AND s.lock_key = ''
             WHERE coalesce(s.name = {START}, true))"
    )
}

pub(super) fn texts(table: &str, is_pooled: bool) -> StartTexts {
    let sql = |text: String| Sql::new(text);
    StartTexts {
        read: sql(read(table)),
        lineage: sql(LINEAGE.to_owned()),
        admit: sql(format!(
            "{DURABLY};
             INSERT INTO {table} AS s (kind, lock_key, name, ttl, label, changed_at)
             VALUES (7, '', {START}, {{11}}, convert_from({{8}}, 'UTF8'), {NOW})
             ON CONFLICT (kind, lock_key, slot) DO UPDATE SET name = excluded.name,
                 ttl = CASE WHEN s.name = excluded.name THEN greatest(s.ttl, excluded.ttl)
                     ELSE excluded.ttl END,
                 version = s.version + (s.name <> excluded.name)::int,
                 label = excluded.label, changed_at = excluded.changed_at
             WHERE s.name = excluded.name OR s.name = {{14}} AND s.version = {{5}};
             {}",
            record(table, is_pooled, "true")
        )),
        // A boot clock that is behind what was noted is another one.
        witness: sql(format!(
            "INSERT INTO {table} AS w (kind, lock_key, name, acquired_at, version, changed_at)
             SELECT 8, k, {START}, {{12}}, coalesce((SELECT s.version FROM {table} s
                 WHERE s.kind = 7 AND s.lock_key = ''), 0), {NOW}
             FROM (SELECT {{10}}::bytea AS k) machine
             WHERE k IS NOT NULL
             ON CONFLICT (kind, lock_key, slot) DO UPDATE SET name = excluded.name,
                 acquired_at = excluded.acquired_at, version = excluded.version,
                 changed_at = excluded.changed_at
             WHERE w.name <> excluded.name OR w.version <> excluded.version
                 OR w.acquired_at > excluded.acquired_at"
        )),
        forget: sql(format!(
            "SELECT set_config('synchronous_commit', 'off', true);
             DELETE FROM {table} WHERE kind = 6 AND lock_key = {{2}}"
        )),
        sweep: sql(format!(
            "DELETE FROM {table} d USING {table} s
             WHERE s.kind = 7 AND s.lock_key = '' AND s.name = {START}
                 AND (d.kind = 8 OR d.kind = 6 AND d.name <> s.name
                     OR (d.kind = 6 AND d.session <> 0 OR d.kind IN (3, 4) AND d.shared IS NULL
                             AND d.claimed_until < {NOW} AND d.changed_at < {NOW} - 60000000)
                         AND (d.kind <> 6 AND d.id IS NULL OR d.session NOT IN
                             (SELECT pid FROM pg_stat_activity WHERE pid IS NOT NULL)))"
        )),
    }
}

/// Reads the records of shared holders, and after them the sessions: those of all readers that live
/// are among them, because a session is recorded before its readers.
pub(super) fn readers(table: &str, kind: u8) -> String {
    format!(
        "SELECT r.lock_key, r.shared FROM {table} r, {table} s
         WHERE r.kind = {kind} AND r.slot = 0 AND r.shared IS NOT NULL
             AND s.kind = 7 AND s.lock_key = '' AND s.name = {START};
         SELECT lock_key FROM {table} WHERE kind = 6 AND name = {START}"
    )
}

pub(crate) fn read(table: &str) -> String {
    format!(
        "SELECT {START}, s.name, coalesce(s.ttl, 0), convert_to(coalesce(s.label, ''), 'UTF8'),
             coalesce((SELECT max(o.ttl) FROM {table} o WHERE o.kind = 6 AND o.name = s.name), 0),
             (current_setting('fsync') = 'on')::int::bigint,
             coalesce(least({{12}} - w.acquired_at, {NOW} - w.changed_at), 0),
             coalesce(s.version, 0)
         FROM (SELECT 1) one
             LEFT JOIN {table} s ON s.kind = 7 AND s.lock_key = ''
             LEFT JOIN {table} w ON w.kind = 8 AND w.lock_key = {{10}} AND w.name = {START}
                 AND w.version = s.version"
    )
}

/// The timeline changes with each promotion, and a new cluster has another identifier. Either function
/// may be missing in services that speak the protocol.
pub(crate) const LINEAGE: &str =
    "SELECT system_identifier::text || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
     FROM pg_control_system()";
