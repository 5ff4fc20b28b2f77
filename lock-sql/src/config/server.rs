use std::path::PathBuf;
use std::time::Duration;

use polylock_core::engine::Engine;
use polylock_core::{Credentials, Error, ErrorKind, Login, LoginSource, Result, TlsFiles};
#[cfg(feature = "mysql")]
use sqlx::mysql::MySqlConnectOptions;
#[cfg(feature = "postgres")]
use sqlx::postgres::PgConnectOptions;

use super::pool::AppPool;
use super::{Pooler, Server, SqlMode};
use crate::dialect::{SchemaName, TableName};
use crate::error::Failure;
use crate::wire::{ClientOptions, Target};

/// Which PostgreSQL, MySQL or MariaDB server has the locks, and how it is used.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_sql::{SqlConfig, SqlMode};
///
/// # #[cfg(feature = "postgres")]
/// # fn main() -> polylock_core::Result<()> {
/// let config = SqlConfig::postgres("db.internal")
///     .with_database("shop")
///     .with_login("orders", "s3cret")
///     .with_mode(SqlMode::Lease)
///     .with_timeout(Duration::from_secs(2))?;
/// assert!(!format!("{config:?}").contains("s3cret"));
/// # Ok(()) }
/// # #[cfg(not(feature = "postgres"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct SqlConfig {
    pub(crate) server: Server,
    /// Those of the application, with their TLS settings and their login.
    pub(crate) client: Option<ClientOptions>,
    /// Whose connections count those of locks.
    pub(crate) pool: Option<AppPool>,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) database: String,
    pub(crate) login: LoginSource,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) mode: SqlMode,
    pub(crate) table: TableName,
    /// PostgreSQL only.
    pub(crate) schema: Option<SchemaName>,
    /// How many connections there are at most, apart from the one that listens.
    pub(crate) connections: usize,
    /// After which silence the server ends the session of a lock.
    pub(crate) session_timeout: Duration,
    /// How long one statement may take.
    pub(crate) timeout: Duration,
    /// Whether waiters are notified, where the server can do that.
    pub(crate) notify: bool,
    pub(crate) pooler: Pooler,
    pub(crate) retention: Duration,
    pub(crate) creates_table: bool,
    pub(crate) strict: bool,
    pub(crate) application_name: String,
    pub(crate) engine: Option<Engine>,
}

impl SqlConfig {
    /// How many connections there are at most, unless set.
    pub const DEFAULT_CONNECTIONS: usize = 10;

    /// After which silence of a client the server ends its sessions, unless set.
    pub const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(30);

    /// How long one statement may take, unless set.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

    /// How long unused rows are kept, unless set.
    pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    /// Names a MySQL or MariaDB server, by its host or, with a leading slash, its socket file. The
    /// server reports which of both it is.
    #[cfg(feature = "mysql")]
    #[must_use]
    pub fn mysql(host: impl Into<String>) -> Self {
        Self::new(Server::MySql, host.into())
    }

    /// Names a PostgreSQL server, by its host or, with a slash at the beginning, the directory of
    /// its socket.
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn postgres(host: impl Into<String>) -> Self {
        Self::new(Server::Postgres, host.into())
    }

    /// Takes the server, the database, the TLS settings and the login from options that the application
    /// has for its own connections, of MySQL or MariaDB.
    ///
    /// Locks have connections of their own. [`with_login`](Self::with_login),
    /// [`with_credentials`](Self::with_credentials), [`with_port`](Self::with_port) and
    /// [`with_database`](Self::with_database) replace what the options have;
    /// [`with_tls`](Self::with_tls) is refused, since the options say it. Whatever decides what a
    /// statement means is set as for other locks: character set, time zone and SQL mode.
    #[cfg(feature = "mysql")]
    #[must_use]
    pub fn from_mysql_options(options: &MySqlConnectOptions) -> Self {
        let socket = options.get_socket().map(|path| path.display().to_string());
        let host = socket.unwrap_or_else(|| options.get_host().to_owned());
        let mut config = Self::new(Server::MySql, host);
        config.port = options.get_port();
        config.database = options.get_database().unwrap_or_default().to_owned();
        config.client = Some(ClientOptions::MySql(options.clone()));
        config
    }

    /// Takes the server, the database, the TLS settings and the login from options that the application
    /// has for its own connections.
    ///
    /// Locks have connections of their own. [`with_login`](Self::with_login),
    /// [`with_credentials`](Self::with_credentials), [`with_port`](Self::with_port) and
    /// [`with_database`](Self::with_database) replace what the options have;
    /// [`with_tls`](Self::with_tls) is refused, since the options say it. The name of the client is
    /// that of this configuration, so that sessions of locks can be told from others.
    ///
    /// # Examples
    ///
    /// ```
    /// use polylock_sql::{SqlConfig, SqlLock, SqlMode};
    /// use sqlx::postgres::PgConnectOptions;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let options: PgConnectOptions = "postgres://app:s3cret@db.internal/shop".parse()?;
    /// let config = SqlConfig::from_postgres_options(&options).with_mode(SqlMode::Lease);
    /// let locks = SqlLock::connect(config).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn from_postgres_options(options: &PgConnectOptions) -> Self {
        let socket = options.get_socket().map(|path| path.display().to_string());
        let host = socket.unwrap_or_else(|| options.get_host().to_owned());
        let mut config = Self::new(Server::Postgres, host);
        config.port = options.get_port();
        // PostgreSQL's own default.
        let database = options.get_database();
        let database = database.unwrap_or_else(|| options.get_username());
        config.database = database.to_owned();
        config.client = Some(ClientOptions::Postgres(options.clone()));
        config
    }

    pub(super) fn new(server: Server, host: String) -> Self {
        Self {
            server,
            client: None,
            pool: None,
            host,
            port: server.port(),
            database: String::new(),
            login: LoginSource::default(),
            tls: None,
            mode: SqlMode::default(),
            table: TableName::default(),
            schema: server.is_postgres().then(SchemaName::default),
            connections: Self::DEFAULT_CONNECTIONS,
            session_timeout: Self::DEFAULT_SESSION_TIMEOUT,
            timeout: Self::DEFAULT_TIMEOUT,
            notify: true,
            pooler: Pooler::default(),
            retention: Self::DEFAULT_RETENTION,
            creates_table: true,
            strict: false,
            application_name: "polylock".to_owned(),
            engine: None,
        }
    }

    /// Sets the port. Default: 5432 for PostgreSQL, 3306 for MySQL.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Names the database that has the table. It must be set.
    #[must_use]
    pub fn with_database(mut self, name: impl Into<String>) -> Self {
        self.database = name.into();
        self
    }

    /// Sets the user and the password.
    #[must_use]
    pub fn with_login(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        let login = Login::new().with_username(username);
        self.login = login.with_password(password).into();
        self
    }

    /// Asks for the user and the password at each connection, for passwords that change.
    ///
    /// The parameter `password-file` of URLs is this with a
    /// [`PasswordFile`](polylock_core::PasswordFile).
    #[must_use]
    pub fn with_credentials(mut self, credentials: impl Credentials) -> Self {
        self.login = LoginSource::credentials(credentials);
        self
    }

    /// Sets the user alone, for servers that know it by its certificate or by its process.
    ///
    /// There must be a user: none is taken from the environment.
    #[must_use]
    pub fn with_user(mut self, username: impl Into<String>) -> Self {
        self.login = Login::new().with_username(username).into();
        self
    }

    /// Speaks TLS. Default: plain TCP.
    ///
    /// The certificate of the server is verified against the authorities of the system, and its name
    /// against the host. Needs the feature `tls`.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls.get_or_insert_default();
        self
    }

    /// Speaks TLS, and trusts the authorities of a PEM file besides those of the system.
    #[must_use]
    pub fn with_tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().ca = Some(file.into());
        self
    }

    /// Speaks TLS, and shows the server a certificate, by the PEM files of its chain and of its key.
    /// Default: none.
    #[must_use]
    pub fn with_tls_identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().identity = Some((cert.into(), key.into()));
        self
    }

    /// Sets how a lock is kept. Default: [`SqlMode::Row`].
    #[must_use]
    pub fn with_mode(mut self, mode: SqlMode) -> Self {
        self.mode = mode;
        self
    }

    /// Names the table. Default: `polylock_locks`.
    ///
    /// Locks of the same key in two tables are two locks, in every mode.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the name is not 1 to 63 ASCII letters, digits
    /// and underscores, begins with a digit, or with `sqlite_`.
    pub fn with_table(mut self, name: &str) -> Result<Self> {
        self.table = TableName::new(name)?;
        Ok(self)
    }

    /// Names the schema of the table, PostgreSQL only. Default: `public`.
    ///
    /// The `search_path` of the user plays no part: it would give two users two tables.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the name is not 1 to 63 ASCII letters, digits
    /// and underscores, begins with a digit, or if the server has no schemas.
    pub fn with_schema(mut self, name: &str) -> Result<Self> {
        self.only_postgres("schema", "its tables are in the database of the URL")?;
        self.schema = Some(SchemaName::new(name)?);
        Ok(self)
    }

    /// Sets how many connections there are at most, 2 to 1000. Default: 10.
    ///
    /// They are separate from those of the application, and opened on demand. In [`SqlMode::Row`]
    /// each lock that is held or waited for takes one, so this limits the locks of the process. In
    /// [`SqlMode::Advisory`] each key that is waited for takes one; the last one is left to other
    /// requests, and more waiters poll every second. Of leases it limits how many statements run at once;
    /// they have up to two more for renewals, and on PostgreSQL one that listens while there are waiters
    /// or holders.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_connections(mut self, most: usize) -> Result<Self> {
        if !(MIN_CONNECTIONS..=MAX_CONNECTIONS).contains(&most) {
            let message = format!(
                "connections must be from {MIN_CONNECTIONS} to {MAX_CONNECTIONS}, not {most}"
            );
            return Err(wrong(message));
        }
        self.connections = most;
        Ok(self)
    }

    /// Sets after which silence of this client the server ends the session of a lock, 2 s to 1 h;
    /// [`SqlMode::Row`] and [`SqlMode::Advisory`] only. Default: 30 s.
    ///
    /// The server sees at once that a process has died. This is for machines and networks that vanish
    /// without a word: a shorter time frees their locks earlier, a longer one lets holders ride out
    /// longer pauses.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_session_timeout(mut self, timeout: Duration) -> Result<Self> {
        let range = (Duration::from_secs(2), Duration::from_secs(3_600));
        self.session_timeout = in_range("session-timeout", timeout, range)?;
        Ok(self)
    }

    /// Sets how long one statement may take, 100 ms to 1 min, before it is
    /// [`Unavailable`](ErrorKind::Unavailable). Default: 5 s.
    ///
    /// A shorter time fails earlier when a server hangs, and mistakes a slow one for a dead one more
    /// often. Opening a connection is bounded by it as well. After a time-out the connection is
    /// closed.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self> {
        let range = (Duration::from_millis(100), Duration::from_secs(60));
        self.timeout = in_range("timeout", timeout, range)?;
        Ok(self)
    }

    /// Never listens for notifications: a waiter asks again until the lock is free. Default: on
    /// PostgreSQL in [`SqlMode::Lease`], one connection listens, besides the others.
    #[must_use]
    pub fn without_notify(mut self) -> Self {
        self.notify = false;
        self
    }

    /// Says that a pooler is in the path that gives each transaction another connection of the
    /// server's. Default: PostgreSQL is asked at the start, MySQL is taken for a server.
    ///
    /// Then no statement is prepared and nothing is listened for. [`SqlMode::Advisory`] is refused.
    #[must_use]
    pub fn behind_transaction_pooler(mut self) -> Self {
        self.pooler = Pooler::Transaction;
        self
    }

    /// Sets how long the row of an unused lock is kept. Default: 7 days.
    ///
    /// Rows are reused, so this bounds the size of the table where keys are never used again. A client
    /// purges a few rows for each one that it makes, and for each record that it writes. In
    /// [`SqlMode::Row`] and in transactions the time counts from when the row was made, or on PostgreSQL
    /// from the last transaction, and a second at least; a row that is locked stays.
    /// Fencing tokens go on increasing after their row is gone. The rows of a
    /// [`Fence`](crate::transaction::Fence) stay for good. Needs the right to `DELETE`; without it, rows
    /// stay.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Never makes the table. Default: it is made if there is none, and the user may.
    #[must_use]
    pub fn without_create_table(mut self) -> Self {
        self.creates_table = false;
        self
    }

    /// Refuses servers that the start-up checks find fault with. Default: a warning.
    #[must_use]
    pub fn with_strict_checks(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Names this client, for `pg_stat_activity`, PostgreSQL only. Default: `polylock`.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the server has no such names.
    pub fn with_application_name(mut self, name: impl Into<String>) -> Result<Self> {
        self.only_postgres("application-name", "it does not name its clients")?;
        self.application_name = name.into();
        Ok(self)
    }

    /// Replaces the engine of this process, for tests that bend time.
    #[must_use]
    pub fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Where to connect to, and how.
    pub(crate) fn target(&self) -> std::result::Result<Target, Failure> {
        Target::of(self)
    }

    /// The table as SQL has it.
    pub(crate) fn table_sql(&self) -> String {
        match &self.schema {
            Some(schema) => format!("\"{}\".\"{}\"", schema.as_str(), self.table.as_str()),
            None => format!("`{}`", self.table.as_str()),
        }
    }

    /// Refuses what no connection can be made with, and what does not go together.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { server, .. } = self;
        let has_user = |login: &Login| login.username().is_some_and(|name| !name.is_empty());
        // Credentials may name one at each connection, and the application's options have one.
        let lacks_user = self.client.is_none() && !self.login.known().is_none_or(has_user);
        for (is_missing, what, example) in [
            (self.host.is_empty(), "host", "HOST"),
            (lacks_user, "user", "USER:PASSWORD@HOST"),
            (
                self.database.is_empty(),
                "database",
                "USER:PASSWORD@HOST/DATABASE",
            ),
        ] {
            if is_missing {
                let scheme = server.name();
                return Err(wrong(format!(
                    "there is no {what}, write {scheme}://{example}"
                )));
            }
        }
        if self.tls.is_some() && self.client.is_some() {
            return Err(wrong(
                "TLS is set on the options of the client, and cannot be set once more",
            ));
        }
        if self.tls.is_some() && self.is_socket() {
            return Err(wrong("a socket file speaks no TLS, leave tls=on out"));
        }
        if self.tls.is_some() && cfg!(not(feature = "tls")) {
            return Err(wrong(
                "this program is built without the feature \"tls\" of polylock-sql",
            ));
        }
        if self.mode == SqlMode::Advisory && self.pooler == Pooler::Transaction {
            return Err(wrong(POOLED_ADVISORY));
        }
        self.check_pool()
    }

    /// Whether TLS was asked for; the options of an application may ask for it.
    #[cfg(feature = "mysql")]
    pub(crate) fn speaks_tls(&self) -> bool {
        self.tls.is_some() || self.client.is_some()
    }

    /// Whether the host is the path of a socket.
    pub(crate) fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }

    fn only_postgres(&self, name: &str, why: &str) -> Result<()> {
        if self.server.is_postgres() {
            return Ok(());
        }
        let server = self.server.title();
        Err(wrong(format!("{server} takes no {name}: {why}")))
    }
}

/// Why a pooler and advisory locks do not go together.
pub(crate) const POOLED_ADVISORY: &str = "a transaction pooler is in the path: it gives the session of an advisory lock to others, who \
     have the lock then. Connect to the server itself, or to a port of the pooler in session mode, \
     or use mode=lease";

const MIN_CONNECTIONS: usize = 2;
const MAX_CONNECTIONS: usize = 1000;

pub(super) fn in_range(
    name: &str,
    timeout: Duration,
    range: (Duration, Duration),
) -> Result<Duration> {
    let (least, most) = range;
    if timeout < least || timeout > most {
        let message = format!("{name} must be between {least:?} and {most:?}, not {timeout:?}");
        return Err(wrong(message));
    }
    Ok(timeout)
}

pub(super) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}
