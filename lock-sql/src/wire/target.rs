use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polylock_core::engine::Engine;
use polylock_core::{ErrorKind, Fencing, TlsFiles};
use sqlx::ConnectOptions as _;
#[cfg(feature = "mysql")]
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::time::timeout;

use super::driver::{DriverOptions, ReservedPool};
use super::{DbError, ErrorClass};
use crate::config::{ServerKind, SqlConfig};
use crate::error::{SqlCause, SqlFailure};

/// What to connect to.
pub(crate) struct ConnectTarget {
    pub(crate) config: SqlConfig,
    /// The server in messages: `host:port`, or the path of a socket.
    address: Arc<str>,
    /// The options without [`SqlConfig::login`]. Built once: for PostgreSQL, this reads files and looks up
    /// the user of the process.
    options: DriverOptions,
    pub(super) reserved: OnceLock<Arc<dyn ReservedPool>>,
    /// Whether the statements of one connection may reach several server connections.
    pub(crate) is_pooled: AtomicBool,
    /// What the server reports; the first report counts.
    pub(crate) reported_database: OnceLock<String>,
    pub(crate) reported_flavor: OnceLock<Flavor>,
    pub(crate) reported_fencing: OnceLock<Fencing>,
}

/// Which of those that speak the protocol of MySQL a server is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flavor {
    MariaDb,
    MySql,
}

impl ConnectTarget {
    /// Checks a configuration, and sets every client option: none comes from the environment.
    pub(crate) fn of(config: SqlConfig) -> Result<Self, SqlFailure> {
        let checked = config.check();
        checked.map_err(|error| SqlCause::Config(error.message().to_owned()))?;
        Ok(Self {
            address: address(&config).into(),
            options: client_options(&config),
            reserved: OnceLock::new(),
            is_pooled: AtomicBool::new(config.is_pooled),
            reported_database: OnceLock::new(),
            reported_flavor: OnceLock::new(),
            reported_fencing: OnceLock::new(),
            config,
        })
    }

    /// Reads the TLS files. They are read again for each connection, so that they can be replaced; this reports a
    /// fault early, and names the file.
    /// Cancel safety: nothing is sent.
    pub(crate) async fn check_files(&self) -> Result<(), SqlFailure> {
        let Some(tls) = self.config.tls.clone() else {
            return Ok(());
        };
        let within = self.config.timeout;
        // A file system that hangs must not stop the thread that renews leases.
        let checking = tokio::task::spawn_blocking(move || check_files(&tls));
        match timeout(within, checking).await {
            Ok(Ok(checked)) => Ok(checked?),
            // The second if the runtime ends meanwhile.
            Err(_) | Ok(Err(_)) => {
                let says = format!("the TLS files were not read within {within:?}");
                Err(SqlCause::Unfit(says).into())
            }
        }
    }

    /// Whether a pooler is in the path, as far as is known.
    pub(crate) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Ordering::Relaxed)
    }

    /// The name that the server has for the database, which a pooler may know by others; the configured
    /// one until the server has reported it.
    pub(crate) fn database(&self) -> &str {
        let reported = self.reported_database.get();
        reported.unwrap_or(&self.config.database)
    }

    /// The kind of server; MySQL until it has reported its own.
    pub(crate) fn flavor(&self) -> Flavor {
        let reported = self.reported_flavor.get().copied();
        reported.unwrap_or(Flavor::MySql)
    }

    /// How far tokens can be trusted, by how the server stores what it commits.
    pub(crate) fn fencing(&self) -> Fencing {
        let reported = self.reported_fencing.get().copied();
        reported.unwrap_or(Fencing::BestEffort)
    }

    /// What a connection is opened with now.
    pub(crate) async fn options(&self) -> Result<DriverOptions, DbError> {
        let given = match self.config.pool {
            // The application may have changed them.
            Some(_) => client_options(&self.config),
            None => self.options.clone(),
        };
        let login = self.config.login.login().await;
        let mut login = login.map_err(|error| {
            DbError::new(
                ErrorClass::NoLogin,
                sqlx::Error::Configuration(error.into()),
            )
        })?;
        // The options of an application include a login.
        if self.config.client.is_some() && login.username().is_none() {
            if login.password().is_none() {
                return Ok(given);
            }
            login = login.with_username(given.username());
        }
        Ok(given.with_login(&login))
    }

    /// The server does not reply.
    pub(crate) fn silent(&self, within: Duration) -> SqlCause {
        SqlCause::Silent {
            server: Some(Arc::clone(&self.address)),
            within,
        }
    }

    /// Limits a step of the start to the timeout of a statement.
    pub(crate) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, SqlFailure>>,
    ) -> Result<T, SqlFailure> {
        let limit = self.config.timeout;
        let done = timeout(limit, work).await;
        done.unwrap_or_else(|_| Err(self.silent(limit).into()))
    }

    /// The failure of an attempt to connect, for a user or a database that the server refuses as well.
    pub(crate) fn refusal(&self, db_error: DbError) -> SqlFailure {
        let config = &self.config;
        if db_error.says.is_some() {
            return SqlFailure::of_opening(db_error);
        }
        let (kind, says) = match (db_error.class, config.server) {
            // MySQL and MariaDB have the same words for a wrong password.
            (ErrorClass::Denied, ServerKind::MySql) if !config.speaks_tls() => (
                ErrorKind::Denied,
                "the server refuses this user, or takes it by TLS only: then write tls=on"
                    .to_owned(),
            ),
            // MySQL does not tell a user that may not use a database whether there is one.
            (ErrorClass::NoRight, ServerKind::MySql) => (
                ErrorKind::Denied,
                format!(
                    "the database {:?} does not exist, or is not granted to this user",
                    config.database
                ),
            ),
            (ErrorClass::NoTable, _) => (
                ErrorKind::InvalidConfig,
                format!("the database {:?} does not exist", config.database),
            ),
            _ => return SqlFailure::of_opening(db_error),
        };
        SqlCause::said(kind, says, db_error.source).into()
    }

    /// Names the server in the error of an attempt to connect to it.
    pub(super) fn unreachable(&self, mut db_error: DbError) -> DbError {
        use sqlx::Error::{Database, Io, Protocol};

        let is_of_server = matches!(*db_error.source, Database(_) | Io(_) | Protocol(_));
        if is_of_server && db_error.class == ErrorClass::Gone {
            db_error.says = Some(format!("cannot connect to {}", self.address).into());
        }
        db_error
    }

    /// Says in the error of a statement which rights the user needs on what the error names.
    pub(super) fn missing_right(&self, db_error: DbError) -> DbError {
        db_error.with_missing_right(self.config.server, &self.config.table_sql())
    }

    /// Reserves connections of the application's pool, if there is one.
    pub(crate) async fn reserve(&self, engine: &Engine) -> Result<(), SqlFailure> {
        if let Some(pool) = &self.config.pool {
            let reserved = pool.reserve(engine, self).await?;
            self.reserved.get_or_init(|| reserved);
        }
        Ok(())
    }

    /// Whether the application has closed its pool, which waits for open connections.
    pub(crate) fn is_closed(&self) -> bool {
        let pool = self.config.pool.as_ref();
        pool.is_some_and(|pool| pool.is_closed())
    }

    /// Ready when the application closes its pool; keeps no connection open.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let event = self.config.pool.as_ref().map(|pool| pool.close_event());
        async move {
            match event {
                Some(event) => event.await,
                None => pending().await,
            }
        }
    }
}

fn address(config: &SqlConfig) -> String {
    let SqlConfig { host, port, .. } = config;
    match host.contains(':') {
        _ if config.is_socket() => host.clone(),
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// The options that a configuration has, those of a pool as they are at the moment, with what is the same
/// on all connections.
fn client_options(config: &SqlConfig) -> DriverOptions {
    let given = config.pool.as_ref().map(|pool| pool.options());
    let given = given.or_else(|| config.client.clone());
    match given.unwrap_or_else(|| own_options(config)) {
        #[cfg(feature = "mysql")]
        DriverOptions::MySql(options) => options
            .port(config.port)
            .database(&config.database)
            .charset("utf8mb4")
            .timezone(Some("+00:00".to_owned()))
            .pipes_as_concat(false)
            .statement_cache_capacity(STATEMENTS)
            .disable_statement_logging()
            .into(),
        #[cfg(feature = "postgres")]
        DriverOptions::Postgres(options) => options
            .port(config.port)
            .database(&config.database)
            .application_name(&config.application_name)
            // PgBouncer refuses it.
            .extra_float_digits(None)
            // Without it, each call would leave a statement on the server.
            .statement_cache_capacity(STATEMENTS)
            .disable_statement_logging()
            .into(),
    }
}

/// How many prepared statements a connection keeps, also where the options of an application say less.
const STATEMENTS: usize = 100;

fn own_options(config: &SqlConfig) -> DriverOptions {
    match config.server {
        #[cfg(feature = "mysql")]
        ServerKind::MySql => mysql(config).into(),
        #[cfg(feature = "postgres")]
        ServerKind::Postgres => postgres(config).into(),
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        server => unreachable!("BUG: {server:?} is not compiled in"),
    }
}

fn check_files(tls: &TlsFiles) -> Result<(), SqlCause> {
    let identity = tls.identity.iter().flat_map(|(cert, key)| [cert, key]);
    for path in tls.ca.iter().chain(identity) {
        std::fs::read(path).map_err(|error| {
            SqlCause::Config(format!("the TLS file {path:?} cannot be read: {error}"))
        })?;
    }
    Ok(())
}

/// Options not set here would come from variables such as `PGPASSWORD`. `PGOPTIONS`, and a client
/// certificate where this configuration has none, cannot be removed.
#[cfg(feature = "postgres")]
fn postgres(config: &SqlConfig) -> PgConnectOptions {
    let mut options = PgConnectOptions::new_without_pgpass()
        .host(&config.host)
        .ssl_mode(PgSslMode::Disable)
        .ssl_root_cert_from_pem(Vec::new());
    if let Some(tls) = &config.tls {
        options = options.ssl_mode(PgSslMode::VerifyFull);
        if let Some(ca) = &tls.ca {
            options = options.ssl_root_cert(ca);
        }
        if let Some((cert, key)) = &tls.identity {
            options = options.ssl_client_cert(cert).ssl_client_key(key);
        }
    }
    options
}

#[cfg(feature = "mysql")]
fn mysql(config: &SqlConfig) -> MySqlConnectOptions {
    let mut options = MySqlConnectOptions::new().ssl_mode(MySqlSslMode::Disabled);
    options = match config.is_socket() {
        true => options.socket(&config.host),
        false => options.host(&config.host),
    };
    if let Some(tls) = &config.tls {
        options = options.ssl_mode(MySqlSslMode::VerifyIdentity);
        if let Some(ca) = &tls.ca {
            options = options.ssl_ca(ca);
        }
        if let Some((cert, key)) = &tls.identity {
            options = options.ssl_client_cert(cert).ssl_client_key(key);
        }
    }
    options
}
