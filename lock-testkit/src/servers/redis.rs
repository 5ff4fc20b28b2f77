use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::host::address;
use super::launch::{SOCKET, connect, launch};
use super::port::free_port;
use super::process::Process;
use super::{RedisOptions, Reply, RespClient};
use crate::clock::ShiftedClock;
use crate::network::Host;

/// One `redis-server`, killed when the value is dropped.
///
/// # Examples
///
/// ```no_run
/// use lock_testkit::servers::{RedisOptions, RedisServer};
///
/// let server = RedisServer::start(RedisOptions::new());
/// server.command(&["SET", "lock:a", "somebody"]);
/// assert_eq!(server.command(&["DEL", "lock:a"]).integer(), Some(1));
/// ```
#[derive(Debug)]
pub struct RedisServer {
    // Ends before its directory goes.
    process: Mutex<Process>,
    dir: TempDir,
    port: u16,
    options: RedisOptions,
}

impl RedisServer {
    /// Starts one and waits until it answers.
    ///
    /// # Panics
    ///
    /// If `redis-server` is not installed or refuses the options.
    #[must_use]
    pub fn start(options: RedisOptions) -> Self {
        loop {
            let port = free_port().expect("a free port");
            match launched(port, &options) {
                Ok((process, dir)) => return Self::new(process, dir, port, options),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("redis-server does not start: {error}"),
            }
        }
    }

    /// Starts one at this port, unless somebody has taken it in the meantime.
    pub(super) fn start_at(port: u16, options: RedisOptions) -> io::Result<Self> {
        let (process, dir) = launched(port, &options)?;
        Ok(Self::new(process, dir, port, options))
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

    /// `redis://127.0.0.1:PORT`, or `rediss:` where it takes TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.options.is_tls() {
            "rediss"
        } else {
            "redis"
        };
        format!("{scheme}://{}", self.address())
    }

    /// `redis+unix:///PATH/TO/ITS/SOCKET`.
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Its socket of the file system.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(SOCKET)
    }

    /// Its directory, with `redis.conf`, `log` and what it persists.
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

    /// Kills it if it runs, starts it on the same port and in the same directory, and waits until
    /// it answers: with what it has persisted, which by default is nothing.
    ///
    /// # Panics
    ///
    /// If it does not start again.
    pub fn restart(&self) {
        let mut process = self.process();
        process.kill().expect("it is watched by a shell");
        let deadline = Instant::now() + PATIENCE;
        loop {
            match launch(self.dir.path(), self.port, &self.options) {
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
    /// If it was started without [`with_clock`](RedisOptions::with_clock).
    pub fn set_clock_offset(&self, seconds: i64) {
        self.clock().set_offset(seconds);
    }

    /// Makes its wall clock fast by so many parts of a million, or slow, without a jump: 50,000 is
    /// 5 %.
    ///
    /// # Panics
    ///
    /// If it was started without [`with_clock`](RedisOptions::with_clock).
    pub fn set_clock_drift(&self, parts_per_million: i64) {
        self.clock().set_drift(parts_per_million);
    }

    /// Asks the server past the client under test, with all rights, on a connection of its own.
    ///
    /// # Panics
    ///
    /// If it does not answer within 5 s. An answer that is an error is returned.
    pub fn command(&self, args: &[impl AsRef<[u8]>]) -> Reply {
        self.try_command(args).expect("the server answers")
    }

    /// The same of a server that may be stopped or killed.
    ///
    /// # Errors
    ///
    /// If it does not answer within 5 s.
    pub fn try_command(&self, args: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        connect(&self.socket(), &self.options)?.command(args)
    }

    /// A connection past the client under test, with all rights, for commands that belong together
    /// such as a write and `WAIT`.
    ///
    /// # Panics
    ///
    /// If the server does not answer within 5 s.
    #[must_use]
    pub fn connect(&self) -> RespClient {
        connect(&self.socket(), &self.options).expect("the server answers")
    }

    /// A connection by TCP from a host, as a client there has it: without a password. Whatever takes
    /// longer than `patience` fails.
    ///
    /// # Errors
    ///
    /// Those of connect(2).
    pub fn connect_from(&self, host: &Host, patience: Duration) -> io::Result<RespClient> {
        let address = (address(self.host()), self.port).into();
        RespClient::connect_from(host, address, patience)
    }

    fn new(process: Process, dir: TempDir, port: u16, options: RedisOptions) -> Self {
        Self {
            process: Mutex::new(process),
            dir,
            port,
            options,
        }
    }

    fn clock(&self) -> ShiftedClock {
        assert!(self.options.has_clock(), "started without a clock");
        ShiftedClock::in_dir(self.dir()).expect("the directory takes files")
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn launched(port: u16, options: &RedisOptions) -> io::Result<(Process, TempDir)> {
    let dir = tempfile::Builder::new().prefix("polylock-").tempdir()?;
    for (name, content) in options.files() {
        fs::write(dir.path().join(name), content)?;
    }
    Ok((launch(dir.path(), port, options)?, dir))
}

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
