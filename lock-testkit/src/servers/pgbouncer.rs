//! PgBouncer, the pooler in front of PostgreSQL.

use std::ffi::OsString;
use std::io;

use super::port::free_port;
use super::server_process::{Service, Setup, Site, deref_to, started};
use super::{PostgresServer, ServerProcess, SharedDatabase};

/// One PgBouncer in front of a [`PostgresServer`], killed when the value is dropped.
///
/// It knows the roles `postgres` and `test` and those of
/// [`PostgresOptions::with_user`](crate::servers::PostgresOptions::with_user), and each database of
/// the server. Under root it runs as the user `postgres` or `nobody`.
#[derive(Debug)]
pub struct PgBouncer(ServerProcess);

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
    #[must_use]
    pub fn before(server: &PostgresServer, mode: PoolMode) -> Self {
        Self::with_config(server, mode, &[])
    }

    /// The same with settings of the section `[pgbouncer]`, such as `default_pool_size`.
    #[must_use]
    pub fn with_config(server: &PostgresServer, mode: PoolMode, settings: &[(&str, &str)]) -> Self {
        let users = server.options().users();
        Self::start(server.port(), users, mode, settings, "")
    }

    /// The same as [`before`](Self::before) in front of the server that a test run shares. It takes
    /// any password, because to check one takes a client that is not optimized 80 ms.
    #[must_use]
    pub fn before_shared(server: &SharedDatabase, mode: PoolMode) -> Self {
        Self::start(server.port(), &[], mode, &[("auth_type", "trust")], "")
    }

    /// The same with another name for one of the databases.
    #[must_use]
    pub fn with_alias(
        server: &SharedDatabase,
        mode: PoolMode,
        alias: &str,
        database: &str,
    ) -> Self {
        let port = server.port();
        let databases = format!("{alias} = host=127.0.0.1 port={port} dbname={database}\n");
        Self::start(port, &[], mode, &[("auth_type", "trust")], &databases)
    }

    /// `postgres://test:test@127.0.0.1:PORT/test`.
    pub fn url(&self) -> String {
        format!("postgres://test:test@127.0.0.1:{}/test", self.port())
    }

    /// Where `SHOW POOLS` and its other commands are asked.
    pub fn admin_url(&self) -> String {
        format!(
            "postgres://postgres:postgres@127.0.0.1:{}/pgbouncer",
            self.port()
        )
    }

    fn start(
        server: u16,
        users: &[(String, String)],
        mode: PoolMode,
        settings: &[(&str, &str)],
        databases: &str,
    ) -> Self {
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Statement => "statement",
            PoolMode::Transaction => "transaction",
        };
        let mut config = DEFAULTS.to_vec();
        config.push(("pool_mode", mode));
        for (name, value) in settings {
            // A name that is there twice is an error.
            config.retain(|(other, _)| other != name);
            config.push((name, value));
        }
        let config = config.into_iter();
        let pooler = Pooler {
            server,
            users: users.to_vec(),
            databases: databases.to_owned(),
            config: config
                .map(|(name, value)| format!("{name} = {value}\n"))
                .collect(),
        };
        started("PgBouncer", || {
            ServerProcess::start_at(free_port()?, Setup::default(), pooler.clone()).map(Self)
        })
    }
}

deref_to!(PgBouncer, 0: ServerProcess);

/// A pooler before the server of a port.
#[derive(Clone, Debug)]
struct Pooler {
    server: u16,
    users: Vec<(String, String)>,
    /// More lines of the section `[databases]`.
    databases: String,
    config: String,
}

impl Service for Pooler {
    fn accounts(&self) -> &'static [&'static str] {
        &["postgres", "nobody"]
    }

    fn configure(&self, site: &Site<'_>) -> io::Result<()> {
        let (server, port, own) = (self.server, site.port, &self.config);
        let databases = &self.databases;
        let config = format!(
            "[databases]\n{databases}* = host=127.0.0.1 port={server}\n\n\
             [pgbouncer]\nlisten_port = {port}\n{own}"
        );
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let known = ["postgres", "test"].map(|name| (name.to_owned(), name.to_owned()));
        let users: String = known
            .iter()
            .chain(&self.users)
            .map(|(name, password)| format!("{} {}\n", quoted(name), quoted(password)))
            .collect();
        site.write(CONFIG, config)?;
        site.write(USERS, users)
    }

    fn command(&self, _site: &Site<'_>) -> io::Result<Vec<OsString>> {
        Ok(vec![PROGRAM.into(), CONFIG.into()])
    }

    fn is_ready(&self, site: &Site<'_>) -> bool {
        site.log().contains("process up")
    }
}

const PROGRAM: &str = "/usr/sbin/pgbouncer";
const CONFIG: &str = "pgbouncer.ini";
const USERS: &str = "users.txt";

const DEFAULTS: [(&str, &str); 8] = [
    ("admin_users", "postgres"),
    ("auth_file", USERS),
    ("auth_type", "scram-sha-256"),
    ("listen_addr", "127.0.0.1"),
    ("max_client_conn", "500"),
    // After a login that was cut off: 15 s by default, in which it serves no client.
    ("server_login_retry", "1"),
    ("server_tls_sslmode", "prefer"),
    // By default PgBouncer also makes a Unix socket, which no client uses.
    ("unix_socket_dir", ""),
];
