use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use crate::checks::{clock, text};
use crate::config::{SqlConfig, SqlMode};
use crate::error::Failure;
use crate::wire::{Connection, Sql};

/// What a server says of itself, as this connection sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) is_in_recovery: bool,
    /// How many servers follow it. Any client that reads its log like one of them counts as one.
    pub(super) standbys: i64,
    /// Those that it does not wait for, as far as this user may know.
    pub(super) asynchronous: i64,
    pub(super) settings: HashMap<String, String>,
    pub(super) clock_offset: Option<Duration>,
}

/// What the configuration needs of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) mode: SqlMode,
    pub(super) timeout: Duration,
    pub(super) trusts_clock: bool,
}

impl Wanted {
    pub(super) fn of(config: &SqlConfig) -> Self {
        Self {
            mode: config.mode,
            timeout: config.timeout,
            trusts_clock: clock::is_trusted(config),
        }
    }
}

impl Facts {
    pub(super) async fn ask(connection: &mut Connection) -> Result<Self, Failure> {
        let failed = Failure::of_statement;
        let settings = connection.message(&Sql::new(SETTINGS), &[]).await;
        let settings = settings.map_err(failed)?;
        let pair = |row: &Vec<_>| (text(row.first()), text(row.get(1)));
        let settings = settings.rows.iter().map(pair).collect();
        let asked = SystemTime::now();
        let state = connection.message(&Sql::new(STATE), &[]).await;
        let state = state.map_err(failed)?;
        Ok(Self {
            is_in_recovery: state.int(0) == Some(1),
            standbys: state.int(1).unwrap_or(0),
            asynchronous: state.int(2).unwrap_or(0),
            settings,
            clock_offset: state.int(3).and_then(|server| clock::offset(asked, server)),
        })
    }

    pub(super) fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.setting(name) == value
    }

    pub(super) fn version(&self) -> u32 {
        self.setting("server_version_num").parse().unwrap_or(0)
    }

    /// A time-out in milliseconds, if the server has it and it is not off.
    pub(super) fn limit(&self, name: &str) -> Option<Duration> {
        let limit = Duration::from_millis(self.setting(name).parse().ok()?);
        Some(limit).filter(|limit| !limit.is_zero())
    }
}

const SETTINGS: &str = "SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN (
    'server_version', 'server_version_num', 'transaction_read_only', 'synchronous_commit', 'fsync',
    'full_page_writes', 'synchronous_standby_names', 'statement_timeout', 'lock_timeout',
    'transaction_timeout')";

/// The log has other readers than standbys, and each has a row. A subscriber names its database,
/// which a standby does not; a backup names its task, and backup programs have known names. A user
/// without access to all statistics sees databases and names, but no states.
const STATE: &str =
    "SELECT pg_is_in_recovery()::int::bigint, followers.number, followers.asynchronous,
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM (
        SELECT count(*) AS number,
            count(*) FILTER (WHERE r.sync_state IN ('async', 'potential')) AS asynchronous
        FROM pg_catalog.pg_stat_replication r
        LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = r.pid
        WHERE a.datid IS NULL AND r.state IS DISTINCT FROM 'backup'
            AND coalesce(r.application_name, '') NOT IN ('pg_basebackup', 'pg_receivewal')
    ) followers";
