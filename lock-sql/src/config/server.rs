use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::{Engine, TIMEOUT_RANGE, duration_in_range};
use polylock_core::{Credentials, Error, Login, LoginSource, Result, TlsFiles};
#[cfg(feature = "mysql")]
use sqlx::mysql::MySqlConnectOptions;
#[cfg(feature = "postgres")]
use sqlx::postgres::PgConnectOptions;

use super::pool::AppPool;
use super::{ServerKind, SqlMode};
use crate::dialect::SqlName;
use crate::wire::DriverOptions;

/// Configuration of the PostgreSQL, MySQL or MariaDB server that stores the locks.
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
    pub(crate) server: ServerKind,
    /// Options of the application, with TLS settings and login.
    pub(crate) client: Option<DriverOptions>,
    pub(crate) pool: Option<Arc<dyn AppPool>>,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) database: String,
    pub(crate) login: LoginSource,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) mode: SqlMode,
    pub(crate) table: SqlName,
    /// PostgreSQL only.
    pub(crate) schema: Option<SqlName>,
    /// Max number of connections, without the one that listens.
    pub(crate) connections: usize,
    /// The silence after which the server ends the session of a lock.
    pub(crate) session_timeout: Duration,
    /// How long one statement may take.
    pub(crate) timeout: Duration,
    /// Whether waiters are notified, if the server supports it.
    pub(crate) notify: bool,
    /// Whether a pooler is declared that gives each transaction another connection.
    pub(crate) is_pooled: bool,
    pub(crate) retention: Duration,
    pub(crate) creates_table: bool,
    pub(crate) strict: bool,
    pub(crate) application_name: String,
    pub(crate) engine: Option<Engine>,
}

impl SqlConfig {
    /// Max number of connections, unless set.
    pub const DEFAULT_CONNECTIONS: usize = 10;

    /// The silence of a client after which the server ends its sessions, unless set.
    pub const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(30);

    /// How long one statement may take, unless set.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

    /// How long unused rows are kept, unless set.
    pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    /// Names a MySQL or MariaDB server by its host, or with a leading slash by its socket file. The
    /// server reports whether it is MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    #[must_use]
    pub fn mysql(host: impl Into<String>) -> Self {
        Self::new(ServerKind::MySql, host.into())
    }

    /// Names a PostgreSQL server by its host, or with a leading slash by the directory of its socket.
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn postgres(host: impl Into<String>) -> Self {
        Self::new(ServerKind::Postgres, host.into())
    }

    /// Uses the server, the database, the TLS settings and the login of the application's own connection
    /// options, for MySQL or MariaDB.
    ///
    /// Locks have connections of their own. [`with_login`](Self::with_login),
    /// [`with_credentials`](Self::with_credentials), [`with_port`](Self::with_port) and
    /// [`with_database`](Self::with_database) override the options. [`with_tls`](Self::with_tls) is
    /// refused, because the options have the TLS settings. Character set, time zone and SQL mode, which
    /// change the meaning of statements, are set as for other locks.
    #[cfg(feature = "mysql")]
    #[must_use]
    pub fn from_mysql_options(options: &MySqlConnectOptions) -> Self {
        let socket = options.get_socket().map(|path| path.display().to_string());
        let host = socket.unwrap_or_else(|| options.get_host().to_owned());
        let mut config = Self::new(ServerKind::MySql, host);
        config.port = options.get_port();
        config.database = options.get_database().unwrap_or_default().to_owned();
        config.client = Some(options.clone().into());
        config
    }

    /// Uses the server, the database, the TLS settings and the login of the application's own connection
    /// options.
    ///
    /// Locks have connections of their own. [`with_login`](Self::with_login),
    /// [`with_credentials`](Self::with_credentials), [`with_port`](Self::with_port) and
    /// [`with_database`](Self::with_database) override the options. [`with_tls`](Self::with_tls) is
    /// refused, because the options have the TLS settings. The application name is that of this
    /// configuration, so that sessions of locks can be told from others.
    ///
    /// Such locks lack the layers of a URL, which [`Registry::stack`](polylock_core::Registry::stack) adds. They do not
    /// exclude locks of another [mode](Self::with_mode).
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
        let mut config = Self::new(ServerKind::Postgres, host);
        config.port = options.get_port();
        // PostgreSQL's own default.
        let database = options.get_database();
        let database = database.unwrap_or_else(|| options.get_username());
        config.database = database.to_owned();
        config.client = Some(options.clone().into());
        config
    }

    pub(super) fn new(server: ServerKind, host: String) -> Self {
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
            table: SqlName::default(),
            schema: server.is_postgres().then(SqlName::public),
            connections: Self::DEFAULT_CONNECTIONS,
            session_timeout: Self::DEFAULT_SESSION_TIMEOUT,
            timeout: Self::DEFAULT_TIMEOUT,
            notify: true,
            is_pooled: false,
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

    /// Requests the user and the password for each connection, for passwords that change.
    ///
    /// The URL parameter `password-file` does this with a [`PasswordFile`](polylock_core::PasswordFile).
    #[must_use]
    pub fn with_credentials(mut self, credentials: impl Credentials) -> Self {
        self.login = LoginSource::credentials(credentials);
        self
    }

    /// Sets only the user, for servers that authenticate it by its certificate or by its process.
    ///
    /// A user is required: none is taken from the environment.
    #[must_use]
    pub fn with_user(mut self, username: impl Into<String>) -> Self {
        self.login = Login::new().with_username(username).into();
        self
    }

    /// Uses TLS. Default: plain TCP.
    ///
    /// The certificate of the server is verified against the authorities of the system, and its name
    /// against the host. Needs the feature `tls`.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls.get_or_insert_default();
        self
    }

    /// Uses TLS, and trusts the authorities of a PEM file in addition to those of the system.
    #[must_use]
    pub fn with_tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().ca = Some(file.into());
        self
    }

    /// Uses TLS with a client certificate, from the PEM files of its chain and of its key. Default:
    /// none.
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
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the name is not 1 to 63 ASCII letters,
    /// digits and underscores, begins with a digit, or with `sqlite_`.
    pub fn with_table(mut self, name: &str) -> Result<Self> {
        self.table = SqlName::table(name)?;
        Ok(self)
    }

    /// Names the schema of the table, PostgreSQL only. Default: `public`.
    ///
    /// The `search_path` of the user has no effect: with it, two users could get two tables.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the name is not 1 to 63 ASCII letters,
    /// digits and underscores, begins with a digit, or if the server has no schemas.
    pub fn with_schema(mut self, name: &str) -> Result<Self> {
        self.only_postgres("schema", "its tables are in the database of the URL")?;
        self.schema = Some(SqlName::schema(name)?);
        Ok(self)
    }

    /// Sets the max number of connections, 2 to 1000. Default: 10.
    ///
    /// They are separate from those of the application, and opened on demand. In [`SqlMode::Row`] each
    /// held lock and each waiter needs one, so this limits the locks of the process. In
    /// [`SqlMode::Advisory`] each key with a waiter needs one; the last connection is left to other
    /// requests, and further waiters poll every second. In [`SqlMode::Lease`] this limits how many
    /// statements run at once. Leases use up to two more connections for renewals, and on PostgreSQL one
    /// that listens while there are waiters or holders.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_connections(mut self, most: usize) -> Result<Self> {
        if !(MIN_CONNECTIONS..=MAX_CONNECTIONS).contains(&most) {
            let message = format!(
                "connections must be from {MIN_CONNECTIONS} to {MAX_CONNECTIONS}, not {most}"
            );
            return Err(Error::config(message));
        }
        self.connections = most;
        Ok(self)
    }

    /// Sets the silence of this client after which the server ends the session of a lock, 2 s to 1 h;
    /// [`SqlMode::Row`] and [`SqlMode::Advisory`] only. Default: 30 s.
    ///
    /// The server detects the death of a process at once. This timeout is for machines and networks that
    /// fail silently: a shorter one frees their locks earlier, a longer one lets holders survive longer
    /// pauses.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_session_timeout(mut self, timeout: Duration) -> Result<Self> {
        let range = (Duration::from_secs(2), Duration::from_secs(3_600));
        self.session_timeout = duration_in_range("session-timeout", timeout, range)?;
        Ok(self)
    }

    /// Sets how long one statement may take, 100 ms to 1 min, before it fails with
    /// [`Unavailable`](polylock_core::ErrorKind::Unavailable). Default: 5 s.
    ///
    /// A shorter timeout detects a hanging server earlier, but mistakes a slow server for a dead one
    /// more often. It also limits opening a connection. After a timeout the connection is closed.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.timeout = duration_in_range("timeout", timeout, TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// Never listens for notifications: waiters poll until the lock is free. Default: on PostgreSQL in
    /// [`SqlMode::Lease`], one additional connection listens.
    #[must_use]
    pub fn without_notify(mut self) -> Self {
        self.notify = false;
        self
    }

    /// Declares a pooler in the path that gives each transaction another connection of the server.
    /// Default: PostgreSQL is tested for a pooler at the start, MySQL is assumed to have none.
    ///
    /// Then no statement is prepared, and no connection listens. [`SqlMode::Advisory`] is refused.
    #[must_use]
    pub fn behind_transaction_pooler(mut self) -> Self {
        self.is_pooled = true;
        self
    }

    /// Sets how long the row of an unused lock is kept. Default: 7 days.
    ///
    /// Rows are reused, so this limits the table size if keys are never used again. A client purges a
    /// few rows for each row that it adds, and for each record that it writes. In [`SqlMode::Row`] and
    /// in transactions the time counts from the creation of the row, or on PostgreSQL from the last
    /// transaction, and is at least a second and one hour at most; locked rows stay. In [`SqlMode::Lease`] rows stay up to
    /// five minutes longer, or until about 80 rows more have been added if that takes longer. Fencing
    /// tokens keep increasing after their row is deleted. The rows of a
    /// [`Fence`](crate::transaction::Fence) are never deleted.
    /// Purging needs the right to `DELETE`; without it, rows stay.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Never creates the table. Default: it is created if it is missing and the user has the right.
    #[must_use]
    pub fn without_create_table(mut self) -> Self {
        self.creates_table = false;
        self
    }

    /// Refuses servers that fail a start-up check. Default: logs a warning.
    #[must_use]
    pub fn with_strict_checks(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Sets the application name in `pg_stat_activity`, PostgreSQL only. Default: `polylock`.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the server does not support application
    /// names.
    pub fn with_application_name(mut self, name: impl Into<String>) -> Result<Self> {
        self.only_postgres("application-name", "it does not name its clients")?;
        self.application_name = name.into();
        Ok(self)
    }

    /// Replaces the engine of this process, for tests that control the clock.
    #[must_use]
    pub fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// The quoted table name for SQL text.
    pub(crate) fn table_sql(&self) -> String {
        match &self.schema {
            Some(schema) => format!("\"{}\".\"{}\"", schema.as_str(), self.table.as_str()),
            None => format!("`{}`", self.table.as_str()),
        }
    }

    /// Refuses incomplete configurations, and settings that contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { server, .. } = self;
        let has_user = |login: &Login| login.username().is_some_and(|name| !name.is_empty());
        // Credentials may supply a user for each connection, and the application's options have one.
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
                return Err(Error::config(format!(
                    "there is no {what}, write {scheme}://{example}"
                )));
            }
        }
        if self.tls.is_some() && self.client.is_some() {
            return Err(Error::config(
                "TLS is set on the options of the client, and cannot be set once more",
            ));
        }
        if self.tls.is_some() && self.is_socket() {
            return Err(Error::config(
                "a socket file speaks no TLS, leave tls=on out",
            ));
        }
        if self.tls.is_some() && cfg!(not(feature = "tls")) {
            return Err(Error::config(
                "this program is built without the feature \"tls\" of polylock (of polylock-sql, \
                 if used alone)",
            ));
        }
        if self.mode == SqlMode::Advisory && self.is_pooled {
            return Err(Error::config(POOLED_ADVISORY));
        }
        self.check_pool()
    }

    /// Whether TLS was asked for; the options of an application may ask for it.
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
        Err(Error::config(format!("{server} takes no {name}: {why}")))
    }
}

/// Why a pooler excludes advisory locks.
pub(crate) const POOLED_ADVISORY: &str = "a transaction pooler is in the path: it gives the session of an advisory lock to others, who \
     have the lock then. Connect to the server itself, or to a port of the pooler in session mode, \
     or use mode=lease";

const MIN_CONNECTIONS: usize = 2;
const MAX_CONNECTIONS: usize = 1000;
