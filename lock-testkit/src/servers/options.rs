use super::tls::{ClientCertificate, TlsFiles};
use crate::network::Host;

/// How a [`RedisServer`](super::RedisServer) is set up. By default it persists nothing and asks
/// for no password.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    host: Option<Host>,
    lines: Vec<String>,
    secured: bool,
    sentinel: bool,
    tls: Option<TlsFiles>,
    files: Vec<(&'static str, String)>,
    clock: bool,
}

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
    /// [`restart`](super::RedisServer::restart).
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

    /// Gives it a wall clock of its own, which is right until
    /// [`set_clock_offset`](super::RedisServer::set_clock_offset) makes it jump.
    #[must_use]
    pub fn with_clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// Runs it on a host, at the address of that.
    #[must_use]
    pub fn with_host(mut self, host: &Host) -> Self {
        self.host = Some(host.clone());
        self
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

    pub(super) fn has_clock(&self) -> bool {
        self.clock
    }

    pub(super) fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) fn is_sentinel(&self) -> bool {
        self.sentinel
    }

    pub(super) fn files(&self) -> &[(&'static str, String)] {
        &self.files
    }

    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }

    pub(super) fn is_secured(&self) -> bool {
        self.secured
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
pub(super) const ADMIN: &str = "testkit";
