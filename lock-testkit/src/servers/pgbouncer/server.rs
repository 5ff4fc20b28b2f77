use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::launch::{configure, launch};
use crate::servers::account::Account;
use crate::servers::port::free_port;
use crate::servers::process::Process;
use crate::servers::template::scratch;
use crate::servers::{PostgresServer, SharedPostgres};

/// One PgBouncer in front of a [`PostgresServer`], killed when the value is dropped.
///
/// It knows the roles `postgres` and `test` and those of
/// [`PostgresOptions::with_user`](crate::servers::PostgresOptions::with_user), and each database of
/// the server. Under root it runs as the user `postgres` or `nobody`.
///
/// # Examples
///
/// ```no_run
/// use lock_testkit::servers::{PgBouncer, PoolMode, PostgresOptions, PostgresServer};
///
/// let server = PostgresServer::start(PostgresOptions::new());
/// let pooler = PgBouncer::before(&server, PoolMode::Transaction);
/// println!("{} hides {}", pooler.url(), server.url());
/// ```
#[derive(Debug)]
pub struct PgBouncer {
    // Ends before its directory goes.
    process: Mutex<Process>,
    dir: TempDir,
    port: u16,
    account: Account,
}

/// How long a client keeps a connection of the server.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PoolMode {
    /// Until it leaves.
    Session,
    /// For one statement; transactions of several are refused.
    Statement,
    /// For one transaction.
    Transaction,
}

impl PgBouncer {
    /// Starts one and waits until it takes connections: 0.05 s on an idle machine. All settings but
    /// those that a private server needs are PgBouncer's own, so it refuses parameters of a
    /// connection that it does not know, such as `extra_float_digits`.
    ///
    /// # Panics
    ///
    /// If PgBouncer is not installed, or takes more than 30 s.
    #[must_use]
    pub fn before(server: &PostgresServer, mode: PoolMode) -> Self {
        Self::with_config(server, mode, &[])
    }

    /// The same with settings of the section `[pgbouncer]`, such as `default_pool_size`.
    ///
    /// # Panics
    ///
    /// As [`before`](Self::before), and if it refuses a setting.
    #[must_use]
    pub fn with_config(server: &PostgresServer, mode: PoolMode, settings: &[(&str, &str)]) -> Self {
        let users = server.options().users();
        let started = Self::try_start(server.port(), users, mode, settings);
        started.unwrap_or_else(|error| panic!("PgBouncer does not start: {error}"))
    }

    /// The same as [`before`](Self::before) in front of the server that a test run shares. It takes
    /// any password, because to check one takes a client that is not optimised 80 ms.
    ///
    /// # Panics
    ///
    /// As [`before`](Self::before).
    #[must_use]
    pub fn before_shared(server: &SharedPostgres, mode: PoolMode) -> Self {
        let started = Self::try_start(server.port(), &[], mode, &[("auth_type", "trust")]);
        started.unwrap_or_else(|error| panic!("PgBouncer does not start: {error}"))
    }

    /// Its port of 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `postgres://test:test@127.0.0.1:PORT/test`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://test:test@127.0.0.1:{}/test", self.port)
    }

    /// Where `SHOW POOLS` and its other commands are asked.
    #[must_use]
    pub fn admin_url(&self) -> String {
        format!(
            "postgres://postgres:postgres@127.0.0.1:{}/pgbouncer",
            self.port
        )
    }

    /// Its directory, with `pgbouncer.ini` and `log`.
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

    /// Kills it if it runs, starts it on the same port, and waits until it takes connections.
    ///
    /// # Panics
    ///
    /// If it does not start again.
    pub fn restart(&self) {
        let mut process = self.process();
        process.kill().expect("it is watched by a shell");
        let deadline = Instant::now() + PATIENCE;
        loop {
            match launch(self.dir(), &self.account) {
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

    fn try_start(
        server: u16,
        users: &[(String, String)],
        mode: PoolMode,
        settings: &[(&str, &str)],
    ) -> io::Result<Self> {
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Statement => "statement",
            PoolMode::Transaction => "transaction",
        };
        let settings: Vec<_> = [("pool_mode", mode)]
            .into_iter()
            .chain(settings.iter().copied())
            .collect();
        let account = Account::of(&["postgres", "nobody"])?;
        let dir = scratch(&account)?;
        let (process, port) = loop {
            let port = free_port()?;
            configure(dir.path(), port, (server, users), &settings, &account)?;
            match launch(dir.path(), &account) {
                Ok(process) => break (process, port),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        };
        Ok(Self {
            process: Mutex::new(process),
            dir,
            port,
            account,
        })
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
