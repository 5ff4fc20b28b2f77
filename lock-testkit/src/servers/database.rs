use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ServerProcess;
use super::server_process::deref_to;
use super::shared::{join, unique};
use crate::command::run;

/// A PostgreSQL or MariaDB server that runs statements past the code under test.
///
/// It has a superuser, `postgres` or `root`, and the user `test`, each with its name as the password,
/// and the database `test` of the latter.
#[derive(Debug)]
pub struct DatabaseServer {
    process: ServerProcess,
    client: DatabaseClient,
}

/// What differs between the two.
#[derive(Debug)]
pub(super) struct Dialect {
    pub(super) name: &'static str,
    pub(super) scheme: &'static str,
    pub(super) superuser: &'static str,
    /// The socket in the directory of a server with this port.
    pub(super) socket: fn(&Path, u16) -> PathBuf,
    /// The command of the client for a database, without its input.
    pub(super) command: fn(&DatabaseClient, &str) -> io::Result<Command>,
    /// The rows that it has printed.
    pub(super) rows: fn(&str) -> Vec<Vec<String>>,
    /// Counts the connections of `test`.
    pub(super) count: &'static str,
    /// Makes a database of `test`, before its name and after it.
    pub(super) create: (&'static str, &'static str),
}

impl DatabaseServer {
    pub(super) fn new(process: ServerProcess, dialect: &'static Dialect) -> Self {
        let client = DatabaseClient {
            dialect,
            address: process.address(),
            port: process.port(),
            dir: process.dir().to_owned(),
        };
        Self { process, client }
    }

    /// `postgres://test:test@127.0.0.1:PORT/test`, or with `mysql:`.
    pub fn url(&self) -> String {
        self.client.url("test", "test")
    }

    /// The same for the superuser.
    pub fn admin_url(&self) -> String {
        self.client.url(self.client.dialect.superuser, "test")
    }

    /// Runs statements past the code under test, as the superuser in the database `test`, on a
    /// connection of its own. Returns the rows of all of them; null is an empty text in PostgreSQL and
    /// `NULL` in MariaDB.
    pub fn sql(&self, text: &str) -> Vec<Vec<String>> {
        self.try_sql(text).expect("the server does it")
    }

    /// The same of a server that may be stopped or killed.
    ///
    /// # Errors
    ///
    /// If a statement fails, or it does not connect within 5 s.
    pub fn try_sql(&self, text: &str) -> io::Result<Vec<Vec<String>>> {
        self.client.run("test", text)
    }

    /// How many connections the user `test` has, as the server tells.
    pub fn connections(&self) -> usize {
        let rows = self.sql(self.client.dialect.count);
        rows[0][0].parse().expect("a number")
    }

    /// Makes an empty database of the user `test` with a name of its own, and returns its URL.
    pub fn database(&self) -> String {
        self.client.make_database()
    }
}

deref_to!(DatabaseServer, process: ServerProcess);

/// A server that all tests of a run share, also across processes. Tests must not stop it; it ends
/// within a second after the run.
///
/// A run is that of `cargo nextest`, and else the process.
#[derive(Clone, Debug)]
pub struct SharedDatabase(DatabaseClient);

impl SharedDatabase {
    /// Its port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// Makes an empty database of the user `test` with a name of its own, and returns its URL:
    /// up to 0.5 s, and up to 8 MB that are there until the end of the run.
    pub fn database(&self) -> String {
        self.0.make_database()
    }

    /// Runs statements in the database of this URL, as [`DatabaseServer::sql`] does.
    pub fn sql(&self, url: &str, text: &str) -> Vec<Vec<String>> {
        let database = url.rsplit('/').next().unwrap_or_default();
        self.0.run(database, text).expect("the server does it")
    }

    /// Finds the one of this run, or starts it.
    pub(super) fn join(dialect: &'static Dialect, start: impl Fn() -> DatabaseServer) -> Self {
        let mut places = join(
            dialect.name,
            || vec![start().process],
            |place| UnixStream::connect((dialect.socket)(&place.dir, place.port)).is_ok(),
        );
        let place = places.pop().expect("BUG: one server is started");
        Self(DatabaseClient {
            dialect,
            address: format!("127.0.0.1:{}", place.port),
            port: place.port,
            dir: place.dir,
        })
    }
}

/// The way to a server past the code under test: the socket in its directory.
#[derive(Clone, Debug)]
pub(super) struct DatabaseClient {
    dialect: &'static Dialect,
    /// Where the code under test connects to.
    address: String,
    pub(super) port: u16,
    pub(super) dir: PathBuf,
}

impl DatabaseClient {
    /// What the code under test gets to know.
    fn url(&self, user: &str, database: &str) -> String {
        let (scheme, address) = (self.dialect.scheme, &self.address);
        format!("{scheme}://{user}:{user}@{address}/{database}")
    }

    /// Runs the statements as the superuser and returns the rows of all of them.
    fn run(&self, database: &str, text: &str) -> io::Result<Vec<Vec<String>>> {
        let printed = run(&mut (self.dialect.command)(self, database)?, text)?;
        Ok((self.dialect.rows)(&printed))
    }

    /// Makes a database with a name that no other has; its URL.
    fn make_database(&self) -> String {
        let name = unique("test");
        let (before, after) = self.dialect.create;
        let made = self.run("test", &format!("{before}{name}{after}"));
        made.expect("the server does it");
        self.url("test", &name)
    }
}
