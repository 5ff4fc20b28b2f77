use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::launch::{Ports, Ready, launch, prepare};
use super::words::{Door, four_letter, mode, value};
use super::{SharedZooKeeper, ZooKeeperOptions};
use crate::clock::ShiftedClock;
use crate::network::Host;
use crate::servers::host::address;
use crate::servers::process::Process;
use crate::servers::shared::Member;

/// One ZooKeeper server, killed when the value is dropped.
///
/// # Examples
///
/// ```no_run
/// use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
///
/// let server = ZooKeeperServer::start(ZooKeeperOptions::new());
/// assert_eq!(server.four_letter("ruok"), "imok");
/// assert_eq!(server.mntr("zk_watch_count"), Some(0));
/// ```
#[derive(Debug)]
pub struct ZooKeeperServer {
    // Ends before its directory goes.
    process: Mutex<Process>,
    dir: TempDir,
    ports: Ports,
    options: ZooKeeperOptions,
    ready: Ready,
}

impl ZooKeeperServer {
    /// Starts one and waits until it serves: 0.8 s on an idle machine.
    ///
    /// # Panics
    ///
    /// If Java or ZooKeeper is not installed, it refuses the options, or takes more than 60 s.
    #[must_use]
    pub fn start(options: ZooKeeperOptions) -> Self {
        loop {
            let ports = Ports::free(&options).expect("free ports");
            match launched(ports, &options, Ready::Serves) {
                Ok(launched) => return Self::new(launched, ports, options, Ready::Serves),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("ZooKeeper does not start: {error}"),
            }
        }
    }

    /// Starts one at these ports, unless somebody has taken them in the meantime.
    pub(super) fn start_at(
        ports: Ports,
        options: ZooKeeperOptions,
        ready: Ready,
    ) -> io::Result<Self> {
        let launched = launched(ports, &options, ready)?;
        Ok(Self::new(launched, ports, options, ready))
    }

    /// Its port of 127.0.0.1, or of its host, without TLS.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.client
    }

    /// Its port of 127.0.0.1, or of its host, for TLS.
    ///
    /// # Panics
    ///
    /// If it was started without [`with_tls`](ZooKeeperOptions::with_tls).
    #[must_use]
    pub fn secure_port(&self) -> u16 {
        self.ports.secure.expect("started with TLS")
    }

    /// Its host, if it has one of its own.
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.options.host()
    }

    /// `127.0.0.1:PORT`, or with the address of its host.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", address(self.host()), self.port())
    }

    /// `zk://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zk://{}", self.address())
    }

    /// The one server that all tests of a run use, started by the first that asks.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn shared() -> SharedZooKeeper {
        SharedZooKeeper::join("server", || vec![Self::start(ZooKeeperOptions::new())])
    }

    /// Its directory, with `zoo.cfg`, `log` and its data.
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

    /// Kills it if it runs, starts it on the same ports and with its data, and waits until it
    /// serves. A member of an ensemble may return earlier, without a leader to follow.
    ///
    /// # Panics
    ///
    /// If it does not start again.
    pub fn restart(&self) {
        let mut process = self.process();
        process.kill().expect("it is watched by a shell");
        let deadline = Instant::now() + PATIENCE;
        loop {
            match launch(self.dir(), self.port(), &self.options, self.ready) {
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

    /// Makes its clock wrong by so many seconds, at once.
    ///
    /// # Panics
    ///
    /// If it was started without [`with_clock_offset`](ZooKeeperOptions::with_clock_offset).
    pub fn set_clock_offset(&self, seconds: i64) {
        self.clock().set_offset(seconds);
    }

    /// Makes its clock fast by so many parts of a million, or slow, without a jump: 50,000 is 5 %.
    ///
    /// # Panics
    ///
    /// As [`set_clock_offset`](Self::set_clock_offset).
    pub fn set_clock_drift(&self, parts_per_million: i64) {
        self.clock().set_drift(parts_per_million);
    }

    /// Asks with one of the four-letter words, on a connection of its own.
    ///
    /// # Panics
    ///
    /// If it does not answer within 5 s.
    #[must_use]
    pub fn four_letter(&self, word: &str) -> String {
        self.try_four_letter(word).expect("the server answers")
    }

    /// The same of a server that may be stopped or killed.
    ///
    /// # Errors
    ///
    /// If it does not answer within 5 s.
    pub fn try_four_letter(&self, word: &str) -> io::Result<String> {
        let (host, port) = (self.host(), self.port());
        four_letter(Door { host, port }, word)
    }

    /// One value of `mntr`, such as `zk_watch_count`; none if it has no such number.
    ///
    /// Every four-letter word, this one too, adds to `zk_packets_received`.
    ///
    /// # Panics
    ///
    /// If it does not answer within 5 s.
    #[must_use]
    pub fn mntr(&self, name: &str) -> Option<i64> {
        value(&self.four_letter("mntr"), name)
    }

    /// `standalone`, `leader` or `follower`; none while it does not serve.
    #[must_use]
    pub fn mode(&self) -> Option<String> {
        mode(&self.try_four_letter("srvr").ok()?)
    }

    /// Hands it over to a test run.
    pub(super) fn into_member(self) -> Member {
        let process = self.process.into_inner();
        Member {
            process: process.unwrap_or_else(PoisonError::into_inner),
            dir: self.dir,
            port: self.ports.client,
        }
    }

    fn new(
        (process, dir): (Process, TempDir),
        ports: Ports,
        options: ZooKeeperOptions,
        ready: Ready,
    ) -> Self {
        Self {
            process: Mutex::new(process),
            dir,
            ports,
            options,
            ready,
        }
    }

    fn clock(&self) -> ShiftedClock {
        let options = &self.options;
        options.clock_offset().expect("started with a clock offset");
        ShiftedClock::in_dir(self.dir()).expect("the directory takes files")
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn launched(
    ports: Ports,
    options: &ZooKeeperOptions,
    ready: Ready,
) -> io::Result<(Process, TempDir)> {
    let dir = tempfile::Builder::new().prefix("polylock-").tempdir()?;
    prepare(dir.path(), ports, options)?;
    let process = launch(dir.path(), ports.client, options, ready)?;
    Ok((process, dir))
}

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
