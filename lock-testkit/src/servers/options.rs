use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use super::account::LOG;
use super::server_process::{Machine, Service, Site, machine_options};
use super::template::remove_if_there;
use super::tls::{ClientCertificate, TlsFiles};
use super::{Reply, RespClient};

/// How a [`RedisServer`](super::RedisServer) is set up. By default it persists nothing and asks
/// for no password.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    machine: Machine,
    lines: Vec<String>,
    secured: bool,
    sentinel: bool,
    tls: Option<TlsFiles>,
    files: Vec<(&'static str, String)>,
}

machine_options!(RedisOptions);

impl RedisOptions {
    /// A server that persists nothing and asks for no password.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line to its configuration, after those that the testkit writes; the value as in
    /// `redis.conf`, where spaces separate words.
    #[must_use]
    pub fn with_config(mut self, name: &str, value: &str) -> Self {
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// Asks clients for this password.
    #[must_use]
    pub fn with_password(self, password: &str) -> Self {
        self.secure().with_config("requirepass", password)
    }

    /// Adds a user by the rules of `ACL SETUSER`, for example `on >secret ~lock:* +@all`.
    #[must_use]
    pub fn with_user(self, name: &str, rules: &str) -> Self {
        self.secure()
            .with_config("user", &format!("{name} {rules}"))
    }

    /// Keeps what is written in an append-only file, so that it is there after
    /// [`restart`](super::ServerProcess::restart).
    #[must_use]
    pub fn with_aof(self, fsync: Fsync) -> Self {
        let fsync = match fsync {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
        };
        self.with_config("appendonly", "yes")
            .with_config("appendfsync", fsync)
    }

    /// Bounds its memory in bytes and says which keys go then: `noeviction`, `allkeys-lru` and so on.
    #[must_use]
    pub fn with_memory(self, limit: usize, policy: &str) -> Self {
        self.with_config("maxmemory", &limit.to_string())
            .with_config("maxmemory-policy", policy)
    }

    /// Makes its port take TLS only.
    #[must_use]
    pub fn with_tls(mut self, files: &TlsFiles, clients: ClientCertificate) -> Self {
        self.tls = Some(files.clone());
        let auth = match clients {
            ClientCertificate::Ignored => "no",
            ClientCertificate::Optional => "optional",
            ClientCertificate::Required => "yes",
        };
        let path = |file: std::path::PathBuf| file.display().to_string();
        self.with_config("tls-cert-file", &path(files.server_certificate()))
            .with_config("tls-key-file", &path(files.server_key()))
            .with_config("tls-ca-cert-file", &path(files.ca()))
            .with_config("tls-auth-clients", auth)
    }

    /// Lets the testkit in, whatever the users may do.
    fn secure(mut self) -> Self {
        if !self.secured {
            self.secured = true;
            self = self.with_config("user", &format!("{ADMIN} on nopass ~* &* +@all"));
        }
        self
    }

    /// A Sentinel.
    pub(super) fn sentinel() -> Self {
        Self {
            sentinel: true,
            ..Self::default()
        }
    }

    /// Adds a line that those of the user replace.
    pub(super) fn with_default(mut self, name: &str, value: &str) -> Self {
        self.lines.insert(0, format!("{name} {value}"));
        self
    }

    /// Puts a file into its directory before it starts for the first time.
    pub(super) fn with_file(mut self, name: &'static str, content: String) -> Self {
        self.files.push((name, content));
        self
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// A connection past the client under test, with all rights, by the socket in the server's own
    /// directory: nobody else answers there, and neither TLS nor a proxy is in between.
    pub(super) fn connect(&self, dir: &Path) -> io::Result<RespClient> {
        let mut client = RespClient::connect_to(&dir.join(SOCKET), COMMAND_TIMEOUT)?;
        if self.secured {
            client.command(&["AUTH", ADMIN, ""])?;
        }
        Ok(client)
    }
}

impl Service for RedisOptions {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn configure(&self, site: &Site<'_>) -> io::Result<()> {
        for (name, content) in &self.files {
            fs::write(site.dir.join(name), content)?;
        }
        let dir = site.dir.display();
        let (plain, tls) = if self.is_tls() {
            (0, site.port)
        } else {
            (site.port, 0)
        };
        let mut lines = vec![
            format!("port {plain}"),
            format!("tls-port {tls}"),
            format!("bind {}", self.machine.address()),
            format!("dir {dir}"),
            format!("logfile {dir}/{LOG}"),
            format!("unixsocket {dir}/{SOCKET}"),
            "daemonize no".to_owned(),
            "save \"\"".to_owned(),
            "appendonly no".to_owned(),
        ];
        if self.machine.host.is_some() {
            // A server without a password would refuse clients of other hosts.
            lines.push("protected-mode no".to_owned());
        }
        lines.extend_from_slice(&self.lines);
        // A server that starts again keeps what it has written into this file, as Sentinels do.
        fs::write(site.dir.join(CONFIG), lines.join("\n") + "\n")
    }

    fn command(&self, site: &Site<'_>) -> io::Result<Vec<OsString>> {
        // What a killed server has left behind would look like one that starts.
        remove_if_there(&site.dir.join(SOCKET))?;
        let mut words = vec!["redis-server".into(), CONFIG.into()];
        words.extend(self.sentinel.then(|| "--sentinel".into()));
        Ok(words)
    }

    /// It listens on the socket after the port, so an answer says that both are its own; an error is
    /// that of one that loads.
    fn is_ready(&self, site: &Site<'_>, _pid: Pid) -> bool {
        let answer = self
            .connect(site.dir)
            .and_then(|mut client| client.command(&["PING"]));
        matches!(answer, Ok(Reply::Simple(_)))
    }
}
/// When a server writes its append-only file to the disk.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fsync {
    /// Before it answers.
    Always,
    /// Once in a second.
    EverySecond,
}

/// The user that the testkit itself is where users are needed.
const ADMIN: &str = "testkit";

const CONFIG: &str = "redis.conf";
pub(super) const SOCKET: &str = "socket";
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
