use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::options::ADMIN;
use super::port::free_port;
use super::process::Process;
use super::{RedisOptions, Reply, RespClient};

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
        let dir = tempfile::Builder::new()
            .prefix("polylock-")
            .tempdir()
            .expect("a temporary directory");
        loop {
            let port = free_port().expect("a free port");
            match launch(dir.path(), port, &options) {
                Ok(process) => {
                    return Self {
                        process: Mutex::new(process),
                        dir,
                        port,
                        options,
                    };
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("redis-server does not start: {error}"),
            }
        }
    }

    /// Its port of 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
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

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn launch(dir: &Path, port: u16, options: &RedisOptions) -> io::Result<Process> {
    let (config, socket) = (dir.join("redis.conf"), dir.join(SOCKET));
    fs::write(&config, configuration(dir, port, options))?;
    // What a killed server has left behind would look like one that starts.
    if let Err(error) = fs::remove_file(&socket)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let process = Process::start("redis-server", &[config.as_os_str()], dir)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        // It listens on the socket after the port, so an answer says that both are its own.
        let answer = connect(&socket, options).and_then(|mut client| client.command(&["PING"]));
        match answer {
            Ok(Reply::Simple(_)) => return Ok(process),
            answer if Instant::now() > deadline => {
                return Err(io::Error::other(format!("no answer but {answer:?}")));
            }
            // Not there, or loading.
            Ok(_) | Err(_) => {}
        }
        if let Some(printed) = process.ended() {
            return Err(reason(dir, printed));
        }
        thread::sleep(PAUSE);
    }
}

fn configuration(dir: &Path, port: u16, options: &RedisOptions) -> String {
    let dir = dir.display();
    let mut lines = vec![
        format!("port {port}"),
        "bind 127.0.0.1".to_owned(),
        format!("dir {dir}"),
        format!("logfile {dir}/{LOG}"),
        format!("unixsocket {dir}/{SOCKET}"),
        "daemonize no".to_owned(),
        "save \"\"".to_owned(),
        "appendonly no".to_owned(),
    ];
    lines.extend_from_slice(options.lines());
    lines.join("\n") + "\n"
}

/// By the socket in the server's own directory: nobody else answers there, and neither TLS nor a
/// proxy is in between.
fn connect(socket: &Path, options: &RedisOptions) -> io::Result<RespClient> {
    let mut client = RespClient::connect_to(socket, PATIENCE)?;
    if options.is_secured() {
        client.command(&["AUTH", ADMIN, ""])?;
    }
    Ok(client)
}

fn reason(dir: &Path, printed: &str) -> io::Error {
    let log = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
    let kind = if log.contains("Address already in use") {
        io::ErrorKind::AddrInUse
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, format!("{printed}{log}"))
}

const SOCKET: &str = "socket";
const LOG: &str = "log";
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
