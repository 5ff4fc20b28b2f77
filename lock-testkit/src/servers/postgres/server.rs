use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::launch::{configure, launch, make_data};
use super::psql::{Psql, identifier, literal};
use super::{PostgresOptions, SharedPostgres};
use crate::clock::ShiftedClock;
use crate::network::Host;
use crate::servers::account::Account;
use crate::servers::host::address;
use crate::servers::port::free_port;
use crate::servers::process::Process;
use crate::servers::shared::Member;
use crate::servers::template::scratch;

/// One PostgreSQL server, killed when the value is dropped.
///
/// It has the superuser `postgres`, the role `test`, each with its name as the password, and the
/// database `test` of the latter, but no databases `postgres` and `template0`. Under root it runs as
/// the user `postgres` or `nobody`.
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
    // Ends before its directory goes.
    process: Mutex<Process>,
    dir: TempDir,
    port: u16,
    options: PostgresOptions,
    account: Account,
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
        let started = Self::try_start(options, make_data).and_then(|server| {
            add_users(server.psql(), &server.options)?;
            Ok(server)
        });
        started.unwrap_or_else(|error| panic!("PostgreSQL does not start: {error}"))
    }

    /// Starts one with data that `make` puts into its directory.
    pub(super) fn try_start(
        options: PostgresOptions,
        make: impl FnOnce(&Path, &Account) -> io::Result<()>,
    ) -> io::Result<Self> {
        let account = Account::of(&["postgres", "nobody"])?;
        let dir = scratch(&account)?;
        make(dir.path(), &account)?;
        let (process, port) = loop {
            let port = free_port()?;
            configure(dir.path(), port, &options, &account)?;
            match launch(dir.path(), &options, &account) {
                Ok(process) => break (process, port),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        };
        Ok(Self {
            process: Mutex::new(process),
            dir,
            port,
            options,
            account,
        })
    }

    /// The one server that all tests of a run use, started by the first that asks.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn shared() -> SharedPostgres {
        SharedPostgres::join(|| Self::start(PostgresOptions::new()))
    }

    /// Its port of 127.0.0.1, or of its host.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its host, if it has one of its own.
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.options.host()
    }

    /// `127.0.0.1:PORT`, or with the address of its host.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", address(self.host()), self.port)
    }

    /// `postgres://test:test@127.0.0.1:PORT/test`.
    #[must_use]
    pub fn url(&self) -> String {
        url("test", &self.address(), "test")
    }

    /// The same for the superuser.
    #[must_use]
    pub fn admin_url(&self) -> String {
        url("postgres", &self.address(), "test")
    }

    /// Its directory, with `data`, `log` and its socket.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its process id, that of the postmaster.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// Stops it with all its processes, as a machine does that freezes: SIGSTOP.
    ///
    /// # Panics
    ///
    /// If there is no such process any more.
    pub fn stop(&self) {
        self.process().signal_all(Signal::STOP).expect("it runs");
    }

    /// Lets it go on: SIGCONT.
    ///
    /// # Panics
    ///
    /// If there is no such process any more.
    pub fn resume(&self) {
        self.process().signal_all(Signal::CONT).expect("it runs");
    }

    /// Kills it with all its processes, running or stopped, and waits until they are gone: SIGKILL.
    ///
    /// # Panics
    ///
    /// If the shell that watches it is gone.
    pub fn kill(&self) {
        self.process().kill().expect("it is watched by a shell");
    }

    /// Kills it if it runs, starts it on the same port and with its data, and waits until it has
    /// recovered and takes connections.
    ///
    /// # Panics
    ///
    /// If it does not start again.
    pub fn restart(&self) {
        let mut process = self.process();
        process.kill().expect("it is watched by a shell");
        let deadline = Instant::now() + PATIENCE;
        loop {
            match launch(self.dir(), &self.options, &self.account) {
                Ok(again) => break *process = again,
                Err(error) => {
                    let taken = error.kind() == io::ErrorKind::AddrInUse;
                    assert!(
                        taken && Instant::now() < deadline,
                        "it does not start again: {error}"
                    );
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Makes its wall clock jump to so many seconds ahead of the clock of the machine, or behind it,
    /// at once; a [`restart`](Self::restart) changes nothing about that. Connections of the server
    /// and what it has measured by other clocks stay as they are.
    ///
    /// # Panics
    ///
    /// If it was started without [`with_clock`](PostgresOptions::with_clock).
    pub fn set_clock_offset(&self, seconds: i64) {
        self.clock().set_offset(seconds);
    }

    /// Makes its wall clock fast by so many parts of a million, or slow, without a jump: 50,000 is
    /// 5 %.
    ///
    /// # Panics
    ///
    /// If it was started without [`with_clock`](PostgresOptions::with_clock).
    pub fn set_clock_drift(&self, parts_per_million: i64) {
        self.clock().set_drift(parts_per_million);
    }

    /// Runs statements past the code under test, as the superuser in the database `test`, on a
    /// connection of its own. Returns the rows of all of them, null as an empty text.
    ///
    /// # Panics
    ///
    /// If one fails, or it does not connect within 5 s.
    pub fn sql(&self, text: &str) -> Vec<Vec<String>> {
        self.try_sql(text).expect("the server does it")
    }

    /// The same of a server that may be stopped or killed.
    ///
    /// # Errors
    ///
    /// If a statement fails, or it does not connect within 5 s.
    pub fn try_sql(&self, text: &str) -> io::Result<Vec<Vec<String>>> {
        self.psql().run(text)
    }

    /// The same as [`sql`](Self::sql), as somebody else.
    ///
    /// # Panics
    ///
    /// As [`sql`](Self::sql), and if the password is wrong.
    pub fn sql_as(&self, user: &str, password: &str, text: &str) -> Vec<Vec<String>> {
        let rows = self.try_sql_as(user, password, text);
        rows.expect("the server does it")
    }

    /// The same as [`try_sql`](Self::try_sql), as somebody else.
    ///
    /// # Errors
    ///
    /// As [`try_sql`](Self::try_sql), and if the password is wrong.
    pub fn try_sql_as(
        &self,
        user: &str,
        password: &str,
        text: &str,
    ) -> io::Result<Vec<Vec<String>>> {
        self.psql().run_as(user, password, text)
    }

    /// How many connections the role `test` has, as `pg_stat_activity` tells.
    ///
    /// # Panics
    ///
    /// As [`sql`](Self::sql).
    #[must_use]
    pub fn backends(&self) -> usize {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'test'";
        let rows = self.sql(count);
        rows[0][0].parse().expect("a number")
    }

    /// Makes an empty database of the role `test` with a name of its own, and returns its URL.
    ///
    /// # Panics
    ///
    /// As [`sql`](Self::sql).
    #[must_use]
    pub fn database(&self) -> String {
        let name = self.psql().make_database().expect("the server does it");
        url("test", &self.address(), &name)
    }

    pub(in crate::servers) fn options(&self) -> &PostgresOptions {
        &self.options
    }

    /// Hands it over to a test run.
    pub(super) fn into_member(self) -> Member {
        let process = self.process.into_inner();
        Member {
            process: process.unwrap_or_else(PoisonError::into_inner),
            dir: self.dir,
            port: self.port,
        }
    }

    fn clock(&self) -> ShiftedClock {
        assert!(self.options.has_clock(), "started without a clock");
        ShiftedClock::in_dir(self.dir()).expect("the directory takes files")
    }

    fn psql(&self) -> Psql<'_> {
        Psql {
            dir: self.dir(),
            port: self.port,
            database: "test",
        }
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a client gets to know.
pub(super) fn url(user: &str, address: &str, database: &str) -> String {
    format!("postgres://{user}:{user}@{address}/{database}")
}

fn add_users(psql: Psql<'_>, options: &PostgresOptions) -> io::Result<()> {
    let create = |(name, password): &(String, String)| {
        let (name, password) = (identifier(name), literal(password));
        format!("CREATE ROLE {name} LOGIN PASSWORD {password};\n")
    };
    let statements: String = options.users().iter().map(create).collect();
    if statements.is_empty() {
        return Ok(());
    }
    psql.run(&statements).map(drop)
}

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
