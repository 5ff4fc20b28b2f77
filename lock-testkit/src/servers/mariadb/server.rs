use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::MariaDbOptions;
use super::launch::SOCKET;
use crate::servers::database::{Client, Dialect};
use crate::servers::port::free_port;
use crate::servers::server_process::started;
use crate::servers::{DatabaseServer, ServerProcess, SharedDatabase};

/// One MariaDB server, killed when the value is dropped.
///
/// Its user `test` may do everything in the database `test` and in those of
/// [`database`](DatabaseServer::database). It has no database `sys`. Under root it runs as the user
/// `mysql` or `nobody`.
///
/// # Examples
///
/// ```no_run
/// use lock_testkit::servers::{MariaDbOptions, MariaDbServer};
///
/// let server = MariaDbServer::start(MariaDbOptions::new());
/// assert_eq!(server.sql("SELECT 1, 'a'"), [["1", "a"]]);
/// assert_eq!(server.connections(), 0);
/// ```
#[derive(Debug)]
pub struct MariaDbServer(DatabaseServer);

impl MariaDbServer {
    /// Starts one and waits until it takes connections: 0.3 s on an idle machine, and 1 s more for
    /// the first of its version, whose data are kept in the temporary directory for those that
    /// follow.
    ///
    /// # Panics
    ///
    /// If MariaDB is not installed, it refuses the options, or takes more than 60 s.
    #[must_use]
    pub fn start(options: MariaDbOptions) -> Self {
        started("MariaDB", || {
            let process = ServerProcess::start_at(free_port()?, options.clone())?;
            let server = DatabaseServer::new(process, &DIALECT);
            if server.host().is_some() {
                server.try_sql(ROOT_OF_HOSTS)?;
            }
            Ok(Self(server))
        })
    }

    /// The one server that all tests of a run use, started by the first that asks.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn shared() -> SharedDatabase {
        SharedDatabase::join(&DIALECT, || Self::start(MariaDbOptions::new()).0)
    }
}

impl Deref for MariaDbServer {
    type Target = DatabaseServer;

    fn deref(&self) -> &DatabaseServer {
        &self.0
    }
}

static DIALECT: Dialect = Dialect {
    name: "mariadb",
    scheme: "mysql",
    superuser: "root",
    socket,
    client,
    rows,
    count: "SELECT count(*) FROM information_schema.processlist WHERE user = 'test'",
    of_database: "db",
    create: ("CREATE DATABASE ", ""),
};

fn socket(dir: &Path, _port: u16) -> PathBuf {
    dir.join(SOCKET)
}

fn client(client: &Client<'_>, user: &str, password: &str) -> io::Result<Command> {
    let mut command = Command::new("mariadb");
    command
        .args(["--no-defaults", "--batch", "--skip-column-names"])
        .args(["--connect-timeout=5", "--default-character-set=utf8mb4"])
        .args(["--user", user, "--database", client.database, "--socket"])
        .arg(client.dir.join(SOCKET))
        .env("MYSQL_PWD", password);
    Ok(command)
}

fn rows(printed: &str) -> Vec<Vec<String>> {
    let fields = |row: &str| row.split('\t').map(plain).collect();
    printed.split_terminator('\n').map(fields).collect()
}

/// A field without the escapes of the client's batch mode.
fn plain(field: &str) -> String {
    let mut text = String::new();
    let mut rest = field.chars();
    while let Some(letter) = rest.next() {
        let letter = match letter {
            '\\' => match rest.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('0') => '\0',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        };
        text.push(letter);
    }
    text
}

/// `root` comes from 127.0.0.1 only otherwise.
const ROOT_OF_HOSTS: &str = "CREATE USER root@'198.18.0.0/255.254.0.0' IDENTIFIED BY 'root';
    GRANT ALL ON *.* TO root@'198.18.0.0/255.254.0.0' WITH GRANT OPTION";
