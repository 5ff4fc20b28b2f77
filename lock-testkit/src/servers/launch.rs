use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::host::address;
use super::options::ADMIN;
use super::process::Process;
use super::{RedisOptions, Reply, RespClient};
use crate::clock::ShiftedClock;

/// Starts a server in this directory and waits until it answers.
pub(super) fn launch(dir: &Path, port: u16, options: &RedisOptions) -> io::Result<Process> {
    let (config, socket) = (dir.join("redis.conf"), dir.join(SOCKET));
    // A server that starts again keeps what it has written into its configuration, as Sentinels do.
    if !config.exists() {
        fs::write(&config, configuration(dir, port, options))?;
    }
    // What a killed server has left behind would look like one that starts.
    if let Err(error) = fs::remove_file(&socket)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut words = Vec::new();
    if options.has_clock() {
        words = ShiftedClock::in_dir(dir)?.words();
    }
    words.extend(["redis-server".into(), config.into_os_string()]);
    if options.is_sentinel() {
        words.push("--sentinel".into());
    }
    let args: Vec<_> = words.iter().skip(1).map(OsString::as_os_str).collect();
    let process = Process::start(&words[0].to_string_lossy(), &args, dir, options.host())?;
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
    let (plain, tls) = if options.is_tls() {
        (0, port)
    } else {
        (port, 0)
    };
    let mut lines = vec![
        format!("port {plain}"),
        format!("tls-port {tls}"),
        format!("bind {}", address(options.host())),
        format!("dir {dir}"),
        format!("logfile {dir}/{LOG}"),
        format!("unixsocket {dir}/{SOCKET}"),
        "daemonize no".to_owned(),
        "save \"\"".to_owned(),
        "appendonly no".to_owned(),
    ];
    if options.host().is_some() {
        // A server without a password would refuse clients of other hosts.
        lines.push("protected-mode no".to_owned());
    }
    lines.extend_from_slice(options.lines());
    lines.join("\n") + "\n"
}

/// By the socket in the server's own directory: nobody else answers there, and neither TLS nor a
/// proxy is in between.
pub(super) fn connect(socket: &Path, options: &RedisOptions) -> io::Result<RespClient> {
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

pub(super) const SOCKET: &str = "socket";
const LOG: &str = "log";
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
