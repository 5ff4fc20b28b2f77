use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use crate::checks::{clock, text};
use crate::error::Failure;
use crate::wire::{Connection, Flavor, Sql};

/// What a server says of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Such as `8.0.36` or `10.11.4-MariaDB-1~deb12u1`.
    pub(super) version: String,
    /// Whether `read_only` does not hold for this user.
    pub(super) may_write_anyway: bool,
    /// The global variables, and what they are.
    pub(super) variables: HashMap<String, String>,
    pub(super) clock_offset: Option<Duration>,
}

impl Facts {
    pub(super) async fn ask(connection: &mut Connection) -> Result<Self, Failure> {
        let failed = Failure::of_statement;
        let variables = connection.message(&Sql::new(VARIABLES), &[]).await;
        let variables = variables.map_err(failed)?;
        let pair = |row: &Vec<_>| (text(row.first()).to_ascii_lowercase(), text(row.get(1)));
        let variables = variables.rows.iter().map(pair).collect();
        let rights = connection.message(&Sql::new(RIGHTS), &[]).await;
        let rights = rights.map_err(failed)?;
        let asked = SystemTime::now();
        let state = connection.message(&Sql::new(STATE), &[]).await;
        let state = state.map_err(failed)?;
        let version = state.rows.first().and_then(|row| row.get(1));
        Ok(Self {
            version: text(version),
            may_write_anyway: rights.int(0).unwrap_or(0) > 0,
            variables,
            clock_offset: state.int(0).and_then(|server| clock::offset(asked, server)),
        })
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        let found = self.variables.get(name);
        found.is_some_and(|found| found.eq_ignore_ascii_case(value))
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.is(name, "ON") || self.is(name, "1")
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.variables.get(name)?.parse().ok()
    }
}

pub(super) fn flavor(version: &str) -> Flavor {
    match version.to_ascii_lowercase().contains("mariadb") {
        true => Flavor::MariaDb,
        false => Flavor::MySql,
    }
}

const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only',
    'super_read_only', 'innodb_read_only', 'innodb_flush_log_at_trx_commit', 'log_bin',
    'sync_binlog', 'wsrep_on', 'group_replication_single_primary_mode',
    'group_replication_group_name')";

/// A grantee is written 'user'@'host', the user itself without the quotes.
const RIGHTS: &str = "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.user_privileges
    WHERE REPLACE(grantee, '''', '') = CURRENT_USER() AND privilege_type IN
    ('SUPER', 'CONNECTION_ADMIN', 'READ_ONLY ADMIN', 'READ ONLY ADMIN')";

const STATE: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), VERSION()";
