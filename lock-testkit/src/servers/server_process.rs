use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, Permissions};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::process::{Account, LOG, ServerChild};
use super::shared::SharedServer;
use super::template::{data_dir, scratch};
use crate::clock::ShiftedClock;
use crate::lock;
use crate::network::NetworkHost;

/// The process of one server of any kind, with its port and its temporary directory. It is killed
/// when the value is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    // Ends before its directory goes.
    process: Mutex<ServerChild>,
    dir: TempDir,
    port: u16,
    setup: Setup,
    service: Box<dyn Service>,
}

/// What one kind of server needs to run, and how it shows that it serves.
pub(super) trait Service: Debug + Send + Sync {
    /// If this process runs as root, the first of these users that exists runs the server; without
    /// any, the user of this process.
    fn accounts(&self) -> &'static [&'static str] {
        &[]
    }

    /// Where its directory is.
    fn parent(&self) -> PathBuf {
        data_dir()
    }

    /// Writes what it needs into its directory, before it starts for the first time.
    fn configure(&self, site: &Site<'_>) -> io::Result<()>;

    /// The program and its arguments, before each start.
    fn command(&self, site: &Site<'_>) -> io::Result<Vec<OsString>>;

    /// Whether it serves.
    fn is_ready(&self, site: &Site<'_>) -> bool;

    /// What a shell does when the server is gone; `$dir` is its directory.
    fn farewell(&self) -> &'static str {
        ""
    }
}

/// Where a server is.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub(super) dir: &'a Path,
    pub(super) port: u16,
    pub(super) account: &'a Account,
}

impl Site<'_> {
    /// What it has logged since its start.
    pub(super) fn log(&self) -> String {
        let log = fs::read(self.dir.join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Writes a file that only the server may read: most servers refuse a key that others can read.
    pub(super) fn write(
        &self,
        name: impl AsRef<Path>,
        content: impl AsRef<[u8]>,
    ) -> io::Result<()> {
        let file = self.dir.join(name);
        fs::write(&file, content)?;
        fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        self.account.give(&file)
    }
}

/// What the options of all kinds of servers have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct Setup {
    /// Where it runs, if that is a host of its own.
    pub(super) host: Option<NetworkHost>,
    /// Whether it has a wall clock of its own.
    pub(super) has_clock: bool,
    /// Names and values of its configuration, of which the last of a name counts.
    pub(super) config: Vec<(String, String)>,
}

impl Setup {
    /// The address that its servers listen on.
    pub(super) fn address(&self) -> Ipv4Addr {
        address(self.host.as_ref())
    }

    /// The whole configuration: the defaults, the TLS settings, the listen address under
    /// `address_name`, and the user's settings, in this order.
    pub(super) fn configuration(
        &self,
        defaults: &[(&str, &str)],
        tls: Option<&[(&str, &str)]>,
        address_name: &str,
    ) -> Vec<(String, String)> {
        let address = self.address().to_string();
        let lines = defaults.iter().chain(tls.unwrap_or_default());
        lines
            .chain([&(address_name, &*address)])
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .chain(self.config.iter().cloned())
            .collect()
    }
}

/// The methods that the options of all kinds of servers have.
macro_rules! setup_options {
    ($options:ty) => {
        impl $options {
            /// A server with the defaults of the testkit.
            #[must_use]
            pub fn new() -> Self {
                Self::default()
            }

            /// Adds a value to its configuration, after those of the testkit: of most names the last
            /// one counts.
            #[must_use]
            pub fn with_config(mut self, name: &str, value: &str) -> Self {
                self.setup.config.push((name.to_owned(), value.to_owned()));
                self
            }

            /// Gives it a wall clock of its own, which is right until
            /// [`set_clock_offset`](crate::servers::ServerProcess::set_clock_offset) makes it jump.
            #[must_use]
            pub fn with_clock(mut self) -> Self {
                self.setup.has_clock = true;
                self
            }

            /// Runs it on a host, at the address of that, or without one on 127.0.0.1.
            #[must_use]
            pub fn with_host<'a>(
                mut self,
                host: impl Into<Option<&'a crate::network::NetworkHost>>,
            ) -> Self {
                self.setup.host = host.into().cloned();
                self
            }
        }
    };
}
pub(super) use setup_options;

/// Implements `Deref` to a field.
macro_rules! deref_to {
    ($server:ty, $field:tt: $part:ty) => {
        impl std::ops::Deref for $server {
            type Target = $part;

            fn deref(&self) -> &$part {
                &self.$field
            }
        }
    };
}
pub(super) use deref_to;

/// Starts something, again and again as long as one of its ports is found to be taken by another
/// program.
pub(super) fn started<T>(name: &str, mut start: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match start() {
            Ok(started) => return started,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => panic!("{name} does not start: {error}"),
        }
    }
}

impl ServerProcess {
    /// Starts a server at this port and waits until it serves. The error is
    /// [`AddrInUse`](io::ErrorKind::AddrInUse) if another program has taken the port, and has the log of
    /// the server.
    pub(super) fn start_at(
        port: u16,
        setup: Setup,
        service: impl Service + 'static,
    ) -> io::Result<Self> {
        let account = Account::of(service.accounts())?;
        let dir = scratch(&service.parent(), &account)?;
        let site = Site {
            dir: dir.path(),
            port,
            account: &account,
        };
        service.configure(&site)?;
        let process = launch(&setup, &service, &site)?;
        Ok(Self {
            process: Mutex::new(process),
            dir,
            port,
            setup,
            service: Box::new(service),
        })
    }

    /// Its port of 127.0.0.1, or of its host.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its host, if it has one of its own.
    pub fn host(&self) -> Option<&NetworkHost> {
        self.setup.host.as_ref()
    }

    /// `127.0.0.1:PORT`, or with the address of its host.
    pub fn address(&self) -> String {
        format!("{}:{}", self.setup.address(), self.port)
    }

    /// Its directory, with its configuration, its data and the file `log`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process().pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// Stops it with all its processes, as a machine does that freezes: SIGSTOP.
    pub fn stop(&self) {
        self.process().signal(Signal::STOP).expect("it runs");
    }

    /// Lets it go on: SIGCONT.
    pub fn resume(&self) {
        self.process().signal(Signal::CONT).expect("it runs");
    }

    /// Kills it with all its processes, running or stopped, and waits until they are gone: SIGKILL.
    pub fn kill(&self) {
        self.process().kill().expect("it is watched by a shell");
    }

    /// Kills it if it runs, starts it on the same port and in the same directory, and waits until it
    /// serves: with what it has persisted.
    pub fn restart(&self) {
        let mut process = self.process();
        process.kill().expect("it is watched by a shell");
        let account = Account::of(self.service.accounts()).expect("it had an account");
        let site = Site {
            dir: self.dir.path(),
            port: self.port,
            account: &account,
        };
        let deadline = Instant::now() + PORT_TIMEOUT;
        *process = started("it", || {
            let launched = launch(&self.setup, &*self.service, &site);
            launched.map_err(|error| match Instant::now() > deadline {
                true => io::Error::other(error),
                false => error,
            })
        });
    }

    /// Makes its wall clock jump to so many seconds ahead of the clock of the machine, or behind it,
    /// at once; a [`restart`](Self::restart) changes nothing about that. Connections of the server
    /// and what it has measured by other clocks stay as they are.
    pub fn set_clock_offset(&self, seconds: i64) {
        self.clock().set_offset(seconds);
    }

    /// Makes its wall clock fast by so many parts of a million, or slow, without a jump: 50,000 is
    /// 5 %.
    pub fn set_clock_drift(&self, parts_per_million: i64) {
        self.clock().set_drift(parts_per_million);
    }

    /// Ties its life to that of the `owner` in place of this process. `common` is removed together with
    /// its own directory.
    pub(super) fn keep(self, owner: u32, common: &Path) -> io::Result<SharedServer> {
        let process = self.process.into_inner();
        let process = process.unwrap_or_else(PoisonError::into_inner);
        process.keep(owner, common)?;
        let (port, dir) = (self.port, self.dir.keep());
        Ok(SharedServer { port, dir })
    }

    fn clock(&self) -> ShiftedClock {
        assert!(self.setup.has_clock, "started without a clock");
        ShiftedClock::in_dir(self.dir()).expect("the directory takes files")
    }

    fn process(&self) -> MutexGuard<'_, ServerChild> {
        lock(&self.process)
    }
}

/// Starts the server of a directory that has all it needs, and waits until it serves.
fn launch(setup: &Setup, service: &dyn Service, site: &Site<'_>) -> io::Result<ServerChild> {
    // The log of a killed server would look as if the new one was ready or its port was taken.
    fs::write(site.dir.join(LOG), "")?;
    site.account.give(&site.dir.join(LOG))?;
    let mut words = Vec::new();
    if setup.has_clock {
        words = ShiftedClock::in_dir(site.dir)?.words();
    }
    words.extend(service.command(site)?);
    let words = site.account.words_in(site.dir, words);
    let process = ServerChild::start(&words, site.dir, setup.host.as_ref(), service.farewell())?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if service.is_ready(site) {
            return Ok(process);
        }
        if process.has_ended() {
            return Err(failed_with(site.log()));
        }
        if Instant::now() > deadline {
            let log = site.log();
            return Err(failed_with(format!(
                "not ready within {START_TIMEOUT:?}\n{log}"
            )));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The error of a server, by its log.
pub(super) fn failed_with(log: String) -> io::Error {
    let kind = match log.contains("Address already in use") {
        true => io::ErrorKind::AddrInUse,
        false => io::ErrorKind::Other,
    };
    io::Error::new(kind, log)
}

/// The address that a server listens on: that of its host.
pub(super) fn address(host: Option<&NetworkHost>) -> Ipv4Addr {
    host.map_or(Ipv4Addr::LOCALHOST, NetworkHost::address)
}

/// Does the work on the server's host, where network faults have no effect.
pub(super) fn near<T: Send>(host: Option<&NetworkHost>, work: impl FnOnce() -> T + Send) -> T {
    match host {
        Some(host) => host.enter(work),
        None => work(),
    }
}

/// Starts several at the same time.
pub(super) fn at_once<I: Send, T: Send>(
    which: impl IntoIterator<Item = I>,
    start: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let start = &start;
    thread::scope(|scope| {
        let starting: Vec<_> = which
            .into_iter()
            .map(|which| scope.spawn(move || start(which)))
            .collect();
        starting
            .into_iter()
            .map(|server| server.join().expect("it starts"))
            .collect()
    })
}

/// How long a server of any kind may take to start: up to 1.3 s of processor time, and longer where
/// many compete for it.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long another program may have the port of a server that starts again.
const PORT_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
