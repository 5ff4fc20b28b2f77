use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polylock_core::engine::Engine;
use polylock_core::{Fencing, Login, LoginSource, TlsFiles};
#[cfg(feature = "mysql")]
use sqlx::MySql;
#[cfg(feature = "postgres")]
use sqlx::Postgres;
#[cfg(feature = "mysql")]
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::DbError;
use super::reserved_connections::ReservedConnections;
use crate::config::{AppPool, Pooler, Server, SqlConfig};
use crate::error::{Cause, Failure};

/// What to connect to.
pub(crate) struct Target {
    options: ClientOptions,
    /// Whether the application supplied the options, so that they include a login.
    is_given: bool,
    /// The configuration, if the options are those of a pool, which may change them.
    pooled: Option<Box<SqlConfig>>,
    reserved: OnceLock<AnyReserved>,
    login: LoginSource,
    /// Whether the statements of one connection may reach several server connections.
    pub(crate) is_pooled: AtomicBool,
    flavor: OnceLock<Flavor>,
    fencing: OnceLock<Fencing>,
    /// Where the server listens.
    port: u16,
    /// Where that is, for people.
    place: String,
}

/// Options of the client, whose `Debug` output shows the password.
#[derive(Clone)]
pub(crate) enum ClientOptions {
    #[cfg(feature = "mysql")]
    MySql(MySqlConnectOptions),
    #[cfg(feature = "postgres")]
    Postgres(PgConnectOptions),
}

impl ClientOptions {
    /// Without a password PostgreSQL gets an empty one, so that `PGPASSWORD` is not used.
    fn with_login(self, login: &Login) -> Self {
        let username = login.username().unwrap_or_default();
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(options) => {
                let options = options.username(username);
                Self::MySql(match login.password() {
                    Some(password) => options.password(password),
                    None => options,
                })
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => {
                let password = login.password().unwrap_or_default();
                Self::Postgres(options.username(username).password(password))
            }
        }
    }

    /// The user of the application's options, for a login that has only a password.
    fn username(&self) -> &str {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(options) => options.get_username(),
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => options.get_username(),
        }
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientOptions")
    }
}

/// Which of those that speak the protocol of MySQL a server is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flavor {
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "MySQL's"))]
    MariaDb,
    MySql,
}

impl Target {
    /// Checks a configuration, and sets every client option: none comes from the environment.
    pub(crate) fn of(config: &SqlConfig) -> Result<Self, Failure> {
        let checked = config.check();
        checked.map_err(|error| Cause::Config(error.message().to_owned()))?;
        if let Some(tls) = &config.tls {
            check_files(tls)?;
        }
        let pooled = config.pool.is_some().then(|| Box::new(config.clone()));
        Ok(Self {
            options: client_options(config),
            is_given: config.client.is_some(),
            pooled,
            reserved: OnceLock::new(),
            login: config.login.clone(),
            is_pooled: AtomicBool::new(config.pooler == Pooler::Transaction),
            flavor: OnceLock::new(),
            fencing: OnceLock::new(),
            port: config.port,
            place: format!("{}:{}/{}", config.host, config.port, config.database),
        })
    }

    /// Whether a pooler is in the path, as far as is known.
    pub(crate) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Ordering::Relaxed)
    }

    /// The port of the server, as this configuration has it.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The kind of server; MySQL until it has reported its own.
    pub(crate) fn flavor(&self) -> Flavor {
        self.flavor.get().copied().unwrap_or(Flavor::MySql)
    }

    /// The server's report; the first one counts.
    #[cfg(feature = "mysql")]
    pub(crate) fn set_flavor(&self, flavor: Flavor) {
        self.flavor.get_or_init(|| flavor);
    }

    /// How far tokens can be trusted, by how the server stores what it commits.
    pub(crate) fn fencing(&self) -> Fencing {
        self.fencing.get().copied().unwrap_or(Fencing::BestEffort)
    }

    /// The server's report; the first one counts.
    pub(crate) fn set_fencing(&self, fencing: Fencing) {
        self.fencing.get_or_init(|| fencing);
    }

    /// What a connection is opened with now.
    pub(super) async fn options(&self) -> Result<ClientOptions, DbError> {
        let given = match &self.pooled {
            Some(config) => client_options(config),
            None => self.options.clone(),
        };
        let mut login = self.login.login().await.map_err(DbError::of_login)?;
        if self.is_given {
            if login.username().is_none() && login.password().is_none() {
                return Ok(given);
            }
            if login.username().is_none() {
                login = login.with_username(self.options.username());
            }
        }
        Ok(given.with_login(&login))
    }

    /// Reserves connections of the application's pool, if there is one.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        engine: &Engine,
        within: Duration,
    ) -> Result<(), Failure> {
        let Some(config) = &self.pooled else {
            return Ok(());
        };
        let count = config.reserved();
        let reserved = match &config.pool {
            #[cfg(feature = "mysql")]
            Some(AppPool::MySql(pool)) => {
                let dial = || {
                    Box::pin(async {
                        match self.options().await? {
                            ClientOptions::MySql(options) => super::mysql::open(&options).await,
                            #[cfg(feature = "postgres")]
                            ClientOptions::Postgres(_) => {
                                Err(DbError::of_client(sqlx::Error::PoolClosed))
                            }
                        }
                    })
                };
                AnyReserved::MySql(
                    ReservedConnections::reserve(engine, pool, count, within, dial).await?,
                )
            }
            #[cfg(feature = "postgres")]
            Some(AppPool::Postgres(pool)) => {
                let dial = || {
                    Box::pin(async {
                        match self.options().await? {
                            #[cfg(feature = "mysql")]
                            ClientOptions::MySql(_) => {
                                Err(DbError::of_client(sqlx::Error::PoolClosed))
                            }
                            ClientOptions::Postgres(options) => {
                                super::postgres::open(&options).await
                            }
                        }
                    })
                };
                AnyReserved::Postgres(
                    ReservedConnections::reserve(engine, pool, count, within, dial).await?,
                )
            }
            None => return Ok(()),
        };
        self.reserved.get_or_init(|| reserved);
        Ok(())
    }

    #[cfg(feature = "mysql")]
    pub(super) fn mysql_reserved(&self) -> Option<&Arc<ReservedConnections<MySql>>> {
        match self.reserved.get()? {
            AnyReserved::MySql(reserved) => Some(reserved),
            #[cfg(feature = "postgres")]
            AnyReserved::Postgres(_) => None,
        }
    }

    #[cfg(feature = "postgres")]
    pub(super) fn postgres_reserved(&self) -> Option<&Arc<ReservedConnections<Postgres>>> {
        match self.reserved.get()? {
            #[cfg(feature = "mysql")]
            AnyReserved::MySql(_) => None,
            AnyReserved::Postgres(reserved) => Some(reserved),
        }
    }

    /// Whether the application has closed its pool, which waits for open connections.
    pub(crate) fn is_closed(&self) -> bool {
        self.reserved.get().is_some_and(|reserved| match reserved {
            #[cfg(feature = "mysql")]
            AnyReserved::MySql(reserved) => reserved.is_closed(),
            #[cfg(feature = "postgres")]
            AnyReserved::Postgres(reserved) => reserved.is_closed(),
        })
    }

    /// Ready when the application closes its pool; keeps no connection open.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let event = self.reserved.get().map(|reserved| match reserved {
            #[cfg(feature = "mysql")]
            AnyReserved::MySql(reserved) => reserved.close_event(),
            #[cfg(feature = "postgres")]
            AnyReserved::Postgres(reserved) => reserved.close_event(),
        });
        async move {
            match event {
                Some(event) => event.await,
                None => pending().await,
            }
        }
    }

    /// Whether it is a PostgreSQL server.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.options, ClientOptions::Postgres(_))
    }

    /// For connections to PostgreSQL that nothing is set on.
    #[cfg(feature = "postgres")]
    pub(crate) async fn postgres(&self) -> Result<Option<PgConnectOptions>, DbError> {
        Ok(match self.options().await? {
            #[cfg(feature = "mysql")]
            ClientOptions::MySql(_) => None,
            ClientOptions::Postgres(options) => Some(options),
        })
    }
}

/// The options have the password, and their own `Debug` output shows it.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("place", &self.place)
            .field("is_pooled", &self.is_pooled.load(Ordering::Relaxed))
            .field("flavor", &self.flavor)
            .finish_non_exhaustive()
    }
}

/// The reserved connections to one of the two.
#[derive(Debug)]
enum AnyReserved {
    #[cfg(feature = "mysql")]
    MySql(Arc<ReservedConnections<MySql>>),
    #[cfg(feature = "postgres")]
    Postgres(Arc<ReservedConnections<Postgres>>),
}

/// The options that a configuration has, those of a pool as they are at the moment.
fn client_options(config: &SqlConfig) -> ClientOptions {
    let given = config.pool.as_ref().map(AppPool::options);
    match given.as_ref().or(config.client.as_ref()) {
        #[cfg(feature = "mysql")]
        Some(ClientOptions::MySql(options)) => {
            let options = options.clone().port(config.port);
            ClientOptions::MySql(settled_mysql(options, config))
        }
        #[cfg(feature = "postgres")]
        Some(ClientOptions::Postgres(options)) => {
            let options = options.clone().port(config.port);
            ClientOptions::Postgres(settled_postgres(options, config))
        }
        None => match config.server {
            #[cfg(feature = "mysql")]
            Server::MySql => ClientOptions::MySql(mysql(config)),
            #[cfg(feature = "postgres")]
            Server::Postgres => ClientOptions::Postgres(postgres(config)),
        },
    }
}

/// They are read for each connection, so that they can be replaced. This check reports a fault early,
/// and names the file.
fn check_files(tls: &TlsFiles) -> Result<(), Cause> {
    let identity = tls.identity.iter().flat_map(|(cert, key)| [cert, key]);
    for path in tls.ca.iter().chain(identity) {
        std::fs::read(path).map_err(|error| {
            Cause::Config(format!("the TLS file {path:?} cannot be read: {error}"))
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
        .port(config.port)
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
    settled_postgres(options, config)
}

/// How many prepared statements a connection keeps, also where the options of an application say less.
const STATEMENTS: usize = 100;

/// What is the same on all connections.
#[cfg(feature = "postgres")]
fn settled_postgres(options: PgConnectOptions, config: &SqlConfig) -> PgConnectOptions {
    let options = options
        .database(&config.database)
        .application_name(&config.application_name)
        // PgBouncer refuses it.
        .extra_float_digits(None)
        // Without it, each call would leave a statement on the server.
        .statement_cache_capacity(STATEMENTS);
    sqlx::ConnectOptions::disable_statement_logging(options)
}

#[cfg(feature = "mysql")]
fn mysql(config: &SqlConfig) -> MySqlConnectOptions {
    let mut options = MySqlConnectOptions::new()
        .port(config.port)
        .ssl_mode(MySqlSslMode::Disabled);
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
    settled_mysql(options, config)
}

/// What is the same on all connections.
#[cfg(feature = "mysql")]
fn settled_mysql(options: MySqlConnectOptions, config: &SqlConfig) -> MySqlConnectOptions {
    let options = options
        .database(&config.database)
        .charset("utf8mb4")
        .timezone(Some("+00:00".to_owned()))
        .pipes_as_concat(false)
        .statement_cache_capacity(STATEMENTS);
    sqlx::ConnectOptions::disable_statement_logging(options)
}
