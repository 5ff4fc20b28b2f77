use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::client::Client;
use super::launch::{configure, launch, make_data};
use super::{MariaDbOptions, SharedMariaDb};
use crate::clock::ShiftedClock;
use crate::network::Host;
use crate::servers::account::Account;
use crate::servers::host::address;
use crate::servers::port::free_port;
use crate::servers::process::Process;
use crate::servers::shared::Member;
use crate::servers::template::scratch;

/// One MariaDB server, killed when the value is dropped.
///
/// It has the users `root`, who may do everything, and `test`, who may do everything in the database
/// `test` and in those of [`database`](Self::database), each with its name as the password, and no
/// database `sys`. Under root it runs as the user `mysql` or `nobody`.
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
pub struct MariaDbServer {
    // Ends before its directory goes.
    process: Mutex<Process>,
    dir: TempDir,
    port: u16,
    options: MariaDbOptions,
    account: Account,
}

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
        let started = Self::try_start(options);
        started.unwrap_or_else(|error| panic!("MariaDB does not start: {error}"))
    }

    /// The one server that all tests of a run use, started by the first that asks.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn shared() -> SharedMariaDb {
        SharedMariaDb::join(|| Self::start(MariaDbOptions::new()))
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

    /// `mysql://test:test@127.0.0.1:PORT/test`.
    #[must_use]
    pub fn url(&self) -> String {
        url("test", &self.address(), "test")
    }

    /// The same for `root`.
    #[must_use]
    pub fn admin_url(&self) -> String {
        url("root", &self.address(), "test")
    }

    /// Its directory, with `data`, `log` and its socket.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// Stops it, as a machine does that freezes: SIGSTOP.
    ///
    /// # Panics
    ///
    /// If there is no such process any more.
    pub fn stop(&self) {
        self.process().signal(Signal::STOP).expect("it runs");
    }

    /// Lets it go on: SIGCONT.
    ///
    /// # Panics
    ///
    /// If there is no such process any more.
    pub fn resume(&self) {
        self.process().signal(Signal::CONT).expect("it runs");
    }

    /// Kills it, running or stopped, and waits until it is gone: SIGKILL.
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
            match launch(self.dir(), self.port, &self.options, &self.account) {
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
    /// If it was started without [`with_clock`](MariaDbOptions::with_clock).
    pub fn set_clock_offset(&self, seconds: i64) {
        self.clock().set_offset(seconds);
    }

    /// Makes its wall clock fast by so many parts of a million, or slow, without a jump: 50,000 is
    /// 5 %.
    ///
    /// # Panics
    ///
    /// If it was started without [`with_clock`](MariaDbOptions::with_clock).
    pub fn set_clock_drift(&self, parts_per_million: i64) {
        self.clock().set_drift(parts_per_million);
    }

    /// Runs statements past the code under test, as `root` in the database `test`, on a connection of
    /// its own. Returns the rows of all of them, null as `NULL`.
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
        self.client().run(text)
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
        self.client().run_as(user, password, text)
    }

    /// How many connections the user `test` has, as the process list tells.
    ///
    /// # Panics
    ///
    /// As [`sql`](Self::sql).
    #[must_use]
    pub fn connections(&self) -> usize {
        let count = self.client().connections(None);
        count.expect("the server does it")
    }

    /// Makes an empty database of the user `test` with a name of its own, and returns its URL.
    ///
    /// # Panics
    ///
    /// As [`sql`](Self::sql).
    #[must_use]
    pub fn database(&self) -> String {
        let name = self.client().make_database().expect("the server does it");
        url("test", &self.address(), &name)
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

    fn try_start(options: MariaDbOptions) -> io::Result<Self> {
        let account = Account::of(&["mysql", "nobody"])?;
        let dir = scratch(&account)?;
        make_data(dir.path(), &account)?;
        configure(dir.path(), &options, &account)?;
        let (process, port) = loop {
            let port = free_port()?;
            match launch(dir.path(), port, &options, &account) {
                Ok(process) => break (process, port),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        };
        let server = Self {
            process: Mutex::new(process),
            dir,
            port,
            options,
            account,
        };
        if server.host().is_some() {
            server.client().run(ROOT_OF_HOSTS)?;
        }
        Ok(server)
    }

    fn clock(&self) -> ShiftedClock {
        assert!(self.options.has_clock(), "started without a clock");
        ShiftedClock::in_dir(self.dir()).expect("the directory takes files")
    }

    fn client(&self) -> Client<'_> {
        Client {
            dir: self.dir(),
            database: "test",
        }
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a client gets to know.
pub(super) fn url(user: &str, address: &str, database: &str) -> String {
    format!("mysql://{user}:{user}@{address}/{database}")
}

/// `root` comes from 127.0.0.1 only otherwise.
const ROOT_OF_HOSTS: &str = "CREATE USER root@'198.18.0.0/255.254.0.0' IDENTIFIED BY 'root';
    GRANT ALL ON *.* TO root@'198.18.0.0/255.254.0.0' WITH GRANT OPTION";

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
