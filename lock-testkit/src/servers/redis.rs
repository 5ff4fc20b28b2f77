use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::port::free_port;
use super::process::LOG;
use super::server_process::{Service, Setup, Site, at_once, deref_to, setup_options, started};
use super::template::if_there;
use super::tls::{ClientCertificate, TestCertificates};
use super::{Reply, RespClient, ServerProcess};

/// One `redis-server`, killed when the value is dropped.
#[derive(Debug)]
pub struct RedisServer {
    process: ServerProcess,
    options: RedisOptions,
}

impl RedisServer {
    /// Starts one and waits until it answers.
    #[must_use]
    pub fn start(options: RedisOptions) -> Self {
        started("redis-server", move || {
            Self::start_at(free_port()?, options.clone())
        })
    }

    /// Starts one at this port; fails if another program has bound it in the meantime.
    pub(super) fn start_at(port: u16, options: RedisOptions) -> io::Result<Self> {
        let process = ServerProcess::start_at(port, options.setup.clone(), options.clone())?;
        Ok(Self { process, options })
    }

    /// `redis://127.0.0.1:PORT`, or `rediss:` where it takes TLS.
    pub fn url(&self) -> String {
        let scheme = self.options.tls.as_ref().map_or("redis", |_| "rediss");
        format!("{scheme}://{}", self.address())
    }

    /// `redis+unix:///PATH/TO/ITS/SOCKET`.
    pub fn socket_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Its socket of the file system.
    pub fn socket(&self) -> PathBuf {
        self.dir().join(SOCKET)
    }

    /// Asks the server past the client under test, with all rights, on a connection of its own.
    pub fn command(&self, args: &[impl AsRef<[u8]>]) -> Reply {
        self.try_command(args).expect("the server answers")
    }

    /// The same of a server that may be stopped or killed.
    ///
    /// # Errors
    ///
    /// If it does not answer within 5 s.
    pub fn try_command(&self, args: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.options.connect(self.dir())?.command(args)
    }

    /// `master`, `slave` or `sentinel`; none if it does not answer.
    pub fn role(&self) -> Option<String> {
        self.try_command(&["ROLE"]).ok()?.items().first()?.text()
    }
}

deref_to!(RedisServer, process: ServerProcess);

/// Several servers that know nothing of each other.
#[derive(Debug)]
pub struct RedisNodes(Vec<RedisServer>);

impl RedisNodes {
    /// Starts so many, all with the same options.
    #[must_use]
    pub fn start(count: usize, options: &RedisOptions) -> Self {
        Self(at_once(0..count, |_| RedisServer::start(options.clone())))
    }
}

deref_to!(RedisNodes, 0: [RedisServer]);

/// How a [`RedisServer`] is set up. By default it persists nothing and asks
/// for no password.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    setup: Setup,
    secured: bool,
    sentinel: bool,
    tls: Option<TestCertificates>,
    files: Vec<(&'static str, String)>,
}

setup_options!(RedisOptions);

impl RedisOptions {
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
    pub fn with_tls(mut self, files: &TestCertificates, clients: ClientCertificate) -> Self {
        self.tls = Some(files.clone());
        let auth = match clients {
            ClientCertificate::Ignored => "no",
            ClientCertificate::Required => "yes",
        };
        let path = |file: PathBuf| file.display().to_string();
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
        let line = (name.to_owned(), value.to_owned());
        self.setup.config.insert(0, line);
        self
    }

    /// Puts a file into its directory before it starts for the first time.
    pub(super) fn with_file(mut self, name: &'static str, content: String) -> Self {
        self.files.push((name, content));
        self
    }

    /// A connection past the client under test, with all rights, to the Unix socket in the server's own
    /// directory. It bypasses TLS and proxies, and no other server can answer there.
    fn connect(&self, dir: &Path) -> io::Result<RespClient> {
        let mut client = RespClient::connect_to(&dir.join(SOCKET), COMMAND_TIMEOUT)?;
        if self.secured {
            client.command(&["AUTH", ADMIN, ""])?;
        }
        Ok(client)
    }
}

impl Service for RedisOptions {
    fn configure(&self, site: &Site<'_>) -> io::Result<()> {
        for (name, content) in &self.files {
            fs::write(site.dir.join(name), content)?;
        }
        let dir = site.dir.display();
        let (plain, tls) = match self.tls {
            Some(_) => (0, site.port),
            None => (site.port, 0),
        };
        let mut lines = vec![
            format!("port {plain}"),
            format!("tls-port {tls}"),
            format!("bind {}", self.setup.address()),
            format!("dir {dir}"),
            format!("logfile {dir}/{LOG}"),
            format!("unixsocket {dir}/{SOCKET}"),
            "daemonize no".to_owned(),
            "save \"\"".to_owned(),
            "appendonly no".to_owned(),
        ];
        if self.setup.host.is_some() {
            // A server without a password would refuse clients of other hosts.
            lines.push("protected-mode no".to_owned());
        }
        let own = self.setup.config.iter();
        lines.extend(own.map(|(name, value)| format!("{name} {value}")));
        // A server that starts again keeps what it has written into this file, as Sentinels do.
        fs::write(site.dir.join(CONFIG), lines.join("\n") + "\n")
    }

    fn command(&self, site: &Site<'_>) -> io::Result<Vec<OsString>> {
        // The files of a killed server would look like those of one that starts.
        if_there(fs::remove_file(site.dir.join(SOCKET)))?;
        let mut words = vec!["redis-server".into(), CONFIG.into()];
        words.extend(self.sentinel.then(|| "--sentinel".into()));
        Ok(words)
    }

    /// The server binds the socket after the port, so an answer shows that it has both. An error means
    /// that it is loading its data.
    fn is_ready(&self, site: &Site<'_>) -> bool {
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
const SOCKET: &str = "socket";
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
