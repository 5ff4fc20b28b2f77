use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::PostgresOptions;
use super::launch::program;
use crate::servers::database::{Client, Dialect};
use crate::servers::port::free_port;
use crate::servers::server_process::started;
use crate::servers::{DatabaseServer, ServerProcess, SharedDatabase};

/// One PostgreSQL server, killed when the value is dropped.
///
/// It has no databases `postgres` and `template0`. Under root it runs as the user `postgres` or
/// `nobody`.
///
/// # Examples
///
/// ```no_run
/// use lock_testkit::servers::{PostgresOptions, PostgresServer};
///
/// let server = PostgresServer::start(PostgresOptions::new());
/// assert_eq!(server.sql("SELECT 1, 'a'"), [["1", "a"]]);
/// assert_eq!(server.backends(), 0);
/// ```
#[derive(Debug)]
pub struct PostgresServer {
    server: DatabaseServer,
    options: PostgresOptions,
}

impl PostgresServer {
    /// Starts one and waits until it takes connections: 0.2 s on an idle machine, and up to 1 s while
    /// many servers come and go, because ext4 does not reuse the inode of a file for 35 s. The first
    /// of its version takes 2 s; its data stay in the temporary directory for those that follow.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is not installed, it refuses the options, or takes more than 60 s.
    #[must_use]
    pub fn start(options: PostgresOptions) -> Self {
        started("PostgreSQL", || {
            let server = Self::start_at(free_port()?, options.clone())?;
            server.add_users()?;
            Ok(server)
        })
    }

    /// Starts one at this port, unless somebody has taken it in the meantime.
    pub(super) fn start_at(port: u16, options: PostgresOptions) -> io::Result<Self> {
        let process = ServerProcess::start_at(port, options.clone())?;
        let server = DatabaseServer::new(process, &DIALECT);
        Ok(Self { server, options })
    }

    /// The one server that all tests of a run use, started by the first that asks.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn shared() -> SharedDatabase {
        SharedDatabase::join(&DIALECT, || Self::start(PostgresOptions::new()).server)
    }

    pub(in crate::servers) fn options(&self) -> &PostgresOptions {
        &self.options
    }

    fn add_users(&self) -> io::Result<()> {
        let create = |(name, password): &(String, String)| {
            let (name, password) = (identifier(name), literal(password));
            format!("CREATE ROLE {name} LOGIN PASSWORD {password};\n")
        };
        let statements: String = self.options.users().iter().map(create).collect();
        if statements.is_empty() {
            return Ok(());
        }
        self.try_sql(&statements).map(drop)
    }
}

impl Deref for PostgresServer {
    type Target = DatabaseServer;

    fn deref(&self) -> &DatabaseServer {
        &self.server
    }
}

static DIALECT: Dialect = Dialect {
    name: "postgres",
    scheme: "postgres",
    superuser: SUPERUSER,
    socket,
    client: psql,
    rows,
    count: "SELECT count(*) FROM pg_stat_activity WHERE usename = 'test'",
    of_database: "datname",
    create: ("CREATE DATABASE ", " OWNER test"),
};

fn socket(dir: &Path, port: u16) -> PathBuf {
    dir.join(format!(".s.PGSQL.{port}"))
}

fn psql(client: &Client<'_>, user: &str, password: &str) -> io::Result<Command> {
    let mut command = Command::new(program("psql")?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command
        .args(["-X", "-q", "-A", "-t", "-w", "-F", FIELD, "-0"])
        .args(["-v", "ON_ERROR_STOP=1", "-f", "-", "-h"])
        .arg(client.dir)
        .args(["-p", &client.port.to_string()])
        .args(["-U", user, "-d", client.database])
        .env("PGPASSWORD", password)
        .env("PGCONNECT_TIMEOUT", "5");
    Ok(command)
}

fn rows(printed: &str) -> Vec<Vec<String>> {
    let fields = |row: &str| row.split(FIELD).map(str::to_owned).collect();
    printed.split_terminator('\0').map(fields).collect()
}

/// Text as SQL writes it.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as SQL writes it.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) const SUPERUSER: &str = "postgres";

/// Between the fields of a row; none of the texts has it.
const FIELD: &str = "\u{1f}";
