use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::{Fencing, TlsFiles};
#[cfg(feature = "mysql")]
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::config::{Pooler, Server, SqlConfig};
use crate::error::{Cause, Failure};

/// What to connect to.
pub(crate) struct Target {
    pub(super) options: Options,
    /// Whether statements of one connection may meet several of the server's.
    pub(crate) is_pooled: AtomicBool,
    flavor: OnceLock<Flavor>,
    fencing: OnceLock<Fencing>,
    /// Where the server listens.
    port: u16,
    /// Where that is, for people.
    place: String,
}

pub(super) enum Options {
    #[cfg(feature = "mysql")]
    MySql(MySqlConnectOptions),
    #[cfg(feature = "postgres")]
    Postgres(PgConnectOptions),
}

/// Which of those that speak the protocol of MySQL a server is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flavor {
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "MySQL's"))]
    MariaDb,
    MySql,
}

impl Target {
    /// Checks a configuration, and sets every option of the client: none is left to the environment.
    pub(crate) fn of(config: &SqlConfig) -> Result<Self, Failure> {
        let checked = config.check();
        checked.map_err(|error| Cause::Config(error.message().to_owned()))?;
        if let Some(tls) = &config.tls {
            check_files(tls)?;
        }
        let options = match config.server {
            #[cfg(feature = "mysql")]
            Server::MySql => Options::MySql(mysql(config)),
            #[cfg(feature = "postgres")]
            Server::Postgres => Options::Postgres(postgres(config)),
        };
        Ok(Self {
            options,
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

    /// For connections that nothing is set on.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(&self) -> Option<&PgConnectOptions> {
        match &self.options {
            #[cfg(feature = "mysql")]
            Options::MySql(_) => None,
            Options::Postgres(options) => Some(options),
        }
    }
}

/// The options have the password, and their own form shows it.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("place", &self.place)
            .field("is_pooled", &self.is_pooled.load(Ordering::Relaxed))
            .field("flavor", &self.flavor)
            .finish_non_exhaustive()
    }
}

/// They are read for each connection, so that others may take their place; this is to tell early, and
/// which one it is.
fn check_files(tls: &TlsFiles) -> Result<(), Cause> {
    let identity = tls.identity.iter().flat_map(|(cert, key)| [cert, key]);
    for path in tls.ca.iter().chain(identity) {
        std::fs::read(path).map_err(|error| {
            Cause::Config(format!("the TLS file {path:?} cannot be read: {error}"))
        })?;
    }
    Ok(())
}

/// What is not set here would come from variables such as `PGPASSWORD`; `PGOPTIONS`, and a
/// certificate of the client's where this configuration has none, cannot be taken out.
#[cfg(feature = "postgres")]
fn postgres(config: &SqlConfig) -> PgConnectOptions {
    let password = config.login.password.as_deref().unwrap_or_default();
    let mut options = PgConnectOptions::new_without_pgpass()
        .host(&config.host)
        .port(config.port)
        .username(&config.login.username)
        .password(password)
        .database(&config.database)
        .application_name(&config.application_name)
        // PgBouncer refuses it.
        .extra_float_digits(None)
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
    sqlx::ConnectOptions::disable_statement_logging(options)
}

#[cfg(feature = "mysql")]
fn mysql(config: &SqlConfig) -> MySqlConnectOptions {
    let mut options = MySqlConnectOptions::new()
        .port(config.port)
        .username(&config.login.username)
        .database(&config.database)
        .charset("utf8mb4")
        .timezone(Some("+00:00".to_owned()))
        .pipes_as_concat(false)
        .ssl_mode(MySqlSslMode::Disabled);
    options = match config.is_socket() {
        true => options.socket(&config.host),
        false => options.host(&config.host),
    };
    if let Some(password) = &config.login.password {
        options = options.password(password);
    }
    if let Some(tls) = &config.tls {
        options = options.ssl_mode(MySqlSslMode::VerifyIdentity);
        if let Some(ca) = &tls.ca {
            options = options.ssl_ca(ca);
        }
        if let Some((cert, key)) = &tls.identity {
            options = options.ssl_client_cert(cert).ssl_client_key(key);
        }
    }
    sqlx::ConnectOptions::disable_statement_logging(options)
}
