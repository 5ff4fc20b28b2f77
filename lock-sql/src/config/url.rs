use polylock_core::{Error, LockUrl, Params, Result};

use super::{ServerKind, SqlConfig, SqlMode};

impl SqlConfig {
    /// Reads a URL and its parameters: `postgres://user:password@host[:5432]/database` or
    /// `mysql://user:password@host[:3306]/database`. `postgresql://` and `mariadb://` are aliases.
    ///
    /// The host may be a socket, with its slashes as `%2F`: its directory for PostgreSQL, its file for
    /// MySQL. The environment, `~/.pgpass` and option files are ignored, with one exception: the client
    /// of PostgreSQL always reads `PGOPTIONS`, `PGSSLCERT` and `PGSSLKEY`.
    ///
    /// | parameter | default | meaning |
    /// |---|---|---|
    /// | `application-name=TEXT` | `polylock` | PostgreSQL only, see [`with_application_name`](Self::with_application_name) |
    /// | `connections=NUMBER` | `10` | see [`with_connections`](Self::with_connections) |
    /// | `create-table=on` or `off` | `on` | see [`without_create_table`](Self::without_create_table) |
    /// | `mode=row`, `lease` or `advisory` | `row` | see [`SqlMode`] |
    /// | `notify=on` or `off` | `on` | PostgreSQL and `mode=lease` only, see [`without_notify`](Self::without_notify) |
    /// | `password-file=PATH` | none | a file with the password, read at each connection: see [`with_credentials`](Self::with_credentials) |
    /// | `pooler=none` or `transaction` | `none`, unless one is found | see [`behind_transaction_pooler`](Self::behind_transaction_pooler) |
    /// | `retention=DURATION` | `7days` | see [`with_retention`](Self::with_retention) |
    /// | `schema=NAME` | `public` | PostgreSQL only, see [`with_schema`](Self::with_schema) |
    /// | `session-timeout=DURATION` | `30s` | not for `mode=lease`, see [`with_session_timeout`](Self::with_session_timeout) |
    /// | `strict=on` or `off` | `off` | see [`with_strict_checks`](Self::with_strict_checks) |
    /// | `table=NAME` | `polylock_locks` | see [`with_table`](Self::with_table) |
    /// | `timeout=DURATION` | `5s` | see [`with_timeout`](Self::with_timeout) |
    /// | `tls=on` or `off` | `off` | see [`with_tls`](Self::with_tls) |
    /// | `tls-ca-file=PATH` | those of the system | see [`with_tls_ca`](Self::with_tls_ca) |
    /// | `tls-cert-file=PATH` | none | see [`with_tls_identity`](Self::with_tls_identity) |
    /// | `tls-key-file=PATH` | none | see [`with_tls_identity`](Self::with_tls_identity) |
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the URL is wrong, or if the mode or
    /// the server does not support a parameter. The message names the fault.
    pub fn from_url(url: &LockUrl) -> Result<Self> {
        let mut params = url.params();
        let server = server(url.scheme())?;
        let host = url.expect_host()?;
        let mut config = Self::new(server, host.name.clone());
        config.port = host.port_or(config.port);
        let database = url.path().strip_prefix('/').unwrap_or_default();
        config = config.with_database(database);
        config = login(url, &mut params, config)?;
        config.mode = match params.one_of("mode", &["row", "lease", "advisory"])? {
            Some("advisory") => SqlMode::Advisory,
            Some("lease") => SqlMode::Lease,
            _ => SqlMode::Row,
        };
        config = of_the_mode(&mut params, config)?;
        config = table(&mut params, config)?;
        config = common(&mut params, config)?;
        config.tls = params.tls(false)?;
        refuse_ssl_mode(url, config.server)?;
        params.finish()?;
        config.check()?;
        Ok(config)
    }
}

fn login(url: &LockUrl, params: &mut Params<'_>, mut config: SqlConfig) -> Result<SqlConfig> {
    config.login = params.login(url.username(), url.password(), "password-file")?;
    let is_known = config.login.known().is_some();
    if url.username().is_none() && (url.password().is_some() || !is_known) {
        return Err(Error::config("there is a password without a user"));
    }
    Ok(config)
}

/// Says what to write for the parameter by which other clients choose TLS.
fn refuse_ssl_mode(url: &LockUrl, server: ServerKind) -> Result<()> {
    let (on, off) = match server {
        ServerKind::MySql => ("VERIFY_IDENTITY", "DISABLED"),
        ServerKind::Postgres => ("verify-full", "disable"),
    };
    for name in ["sslmode", "ssl-mode"] {
        if url.params().string(name).is_some() {
            return Err(Error::config(format!(
                "unknown parameter {name:?}: write tls=on, which is {on} (tls-ca-file=PATH for an \
                 authority that the system does not know), or tls=off, which is {off}; there is \
                 nothing between them"
            )));
        }
    }
    Ok(())
}

fn server(scheme: &str) -> Result<ServerKind> {
    match scheme {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(ServerKind::Postgres),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(ServerKind::MySql),
        _ => Err(Error::config(
            "the scheme is none of those that are compiled in: write postgres://HOST:PORT or \
             mysql://HOST:PORT",
        )),
    }
}

/// Reads the parameters that only some modes have.
fn of_the_mode(params: &mut Params<'_>, mut config: SqlConfig) -> Result<SqlConfig> {
    let (mode, is_lease) = (config.mode.name(), config.mode == SqlMode::Lease);
    let misplaced = |name: &str, goes: &str| {
        let message = format!("{name} goes with {goes}, and this URL has mode={mode}");
        Err(Error::config(message))
    };
    if let Some(timeout) = params.duration("session-timeout")? {
        if is_lease {
            return misplaced("session-timeout", "mode=row and mode=advisory");
        }
        config = config.with_session_timeout(timeout)?;
    }
    if let Some(notify) = params.bool("notify")? {
        if !config.server.is_postgres() {
            let server = config.server.title();
            return Err(Error::config(format!(
                "{server} has no notifications for notify"
            )));
        }
        if !is_lease {
            return misplaced("notify", "mode=lease");
        }
        if !notify {
            config = config.without_notify();
        }
    }
    if params.one_of("pooler", &["none", "transaction"])? == Some("transaction") {
        config = config.behind_transaction_pooler();
    }
    Ok(config)
}

fn table(params: &mut Params<'_>, mut config: SqlConfig) -> Result<SqlConfig> {
    if let Some(name) = params.string("table") {
        config = config.with_table(name)?;
    }
    if let Some(name) = params.string("schema") {
        config = config.with_schema(name)?;
    }
    if params.bool("create-table")? == Some(false) {
        config = config.without_create_table();
    }
    if let Some(retention) = params.duration("retention")? {
        config = config.with_retention(retention);
    }
    Ok(config)
}

fn common(params: &mut Params<'_>, mut config: SqlConfig) -> Result<SqlConfig> {
    if let Some(most) = params.integer("connections", 0..=1_000_000)? {
        config = config.with_connections(most)?;
    }
    if let Some(timeout) = params.duration("timeout")? {
        config = config.with_timeout(timeout)?;
    }
    if let Some(name) = params.string("application-name") {
        config = config.with_application_name(name)?;
    }
    if params.bool("strict")? == Some(true) {
        config = config.with_strict_checks();
    }
    Ok(config)
}
