use super::launch::Primary;
use crate::servers::TlsFiles;
use crate::servers::server_process::{Machine, machine_options};

/// How a [`PostgresServer`](super::PostgresServer) is set up. By default what is committed survives
/// a [`kill`](crate::servers::ServerProcess::kill) but not a power failure, and everything else is as
/// PostgreSQL has it, with less memory.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    pub(super) machine: Machine,
    pub(super) tls: Option<TlsFiles>,
    /// Whose data it starts with; none for new data.
    pub(super) primary: Option<Primary>,
    config: Vec<(String, String)>,
    users: Vec<(String, String)>,
}

machine_options!(PostgresOptions);

impl PostgresOptions {
    /// A server without TLS and with the roles `postgres` and `test`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line to `postgresql.conf`. The last line of a name counts, and those of the testkit
    /// come first.
    #[must_use]
    pub fn with_config(mut self, name: &str, value: &str) -> Self {
        self.config.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets `fsync`, which is off by default. `synchronous_commit` stays on.
    #[must_use]
    pub fn with_durability(self, on: bool) -> Self {
        self.with_config("fsync", if on { "on" } else { "off" })
    }

    /// Takes connections by TCP with TLS only.
    #[must_use]
    pub fn with_tls(mut self, files: &TlsFiles) -> Self {
        self.tls = Some(files.clone());
        self
    }

    /// Adds a role that may log in and nothing else.
    #[must_use]
    pub fn with_user(mut self, name: &str, password: &str) -> Self {
        self.users.push((name.to_owned(), password.to_owned()));
        self
    }

    pub(in crate::servers) fn users(&self) -> &[(String, String)] {
        &self.users
    }

    /// The lines of `postgresql.conf` that these options ask for.
    pub(super) fn config(&self) -> Vec<(String, String)> {
        let mut config: Vec<_> = DEFAULTS
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let address = self.machine.address().to_string();
        config.push(("listen_addresses".to_owned(), address));
        if self.tls.is_some() {
            config.extend(TLS.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        config.extend_from_slice(&self.config);
        config
    }

    /// The lines of `pg_hba.conf`. The socket is for the testkit, with TLS or without.
    pub(super) fn access(&self) -> String {
        let host = if self.tls.is_some() {
            "hostssl"
        } else {
            "host"
        };
        let clients = match self.machine.host {
            Some(_) => "198.18.0.0/15",
            None => "127.0.0.1/32",
        };
        format!(
            "local all postgres trust\n\
             local replication postgres trust\n\
             local all all scram-sha-256\n\
             {host} all all {clients} scram-sha-256\n\
             {host} replication all {clients} scram-sha-256\n"
        )
    }
}

const DEFAULTS: [(&str, &str); 8] = [
    ("fsync", "off"),
    // Memory in /dev/shm would outlive a server that is killed.
    ("dynamic_shared_memory_type", "mmap"),
    ("huge_pages", "off"),
    ("jit", "off"),
    ("max_connections", "500"),
    ("shared_buffers", "32MB"),
    // For a standby that was away.
    ("wal_keep_size", "64MB"),
    ("log_line_prefix", "%m [%p] %u@%d "),
];

const TLS: [(&str, &str); 3] = [
    ("ssl", "on"),
    ("ssl_cert_file", "server.pem"),
    ("ssl_key_file", "server.key"),
];
