#[cfg(test)]
mod tests;
mod url;

use std::path::PathBuf;
use std::time::Duration;

use polylock_core::engine::{Engine, TIMEOUT_RANGE, duration_in_range};
use polylock_core::{Credentials, Error, Login, LoginSource, Result, TlsFiles};

pub(crate) use self::url::{PORT, SCHEMES};

/// The configuration of locks in an etcd cluster.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_etcd::EtcdConfig;
///
/// # fn main() -> polylock_core::Result<()> {
/// let config = EtcdConfig::new([("etcd1", 2379), ("etcd2", 2379), ("etcd3", 2379)])
///     .with_prefix("apps/orders/locks")?
///     .with_login("orders", "s3cret")
///     .with_timeout(Duration::from_secs(5))?;
/// assert!(!format!("{config:?}").contains("s3cret"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) prefix: String,
    pub(crate) connect_timeout: Duration,
    /// How long one request may take, on all servers together.
    pub(crate) timeout: Duration,
    pub(crate) login: Option<LoginSource>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) strict: bool,
    pub(crate) engine: Option<Engine>,
}

impl EtcdConfig {
    /// The default prefix of the keys of locks.
    pub const DEFAULT_PREFIX: &'static str = "locks";

    /// The default timeout of the first reply.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

    /// The default timeout of one request.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

    /// Names servers of one cluster, by host and port. One is enough, but all of them are better. Without any,
    /// connecting fails with [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig).
    #[must_use]
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = (H, u16)>) -> Self {
        let hosts = hosts.into_iter();
        Self {
            hosts: hosts.map(|(host, port)| (host.into(), port)).collect(),
            prefix: Self::DEFAULT_PREFIX.to_owned(),
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            timeout: Self::DEFAULT_TIMEOUT,
            login: None,
            tls: None,
            strict: false,
            engine: None,
        }
    }

    /// Sets the prefix of the keys of locks. Default: `locks`.
    ///
    /// The lock `NAME` is that of `etcdctl lock PREFIX/NAME`. A slash follows the prefix.
    ///
    /// No prefix may be below another one: with `locks` and `locks/orders`, the lock `orders` of the first
    /// waits for every contender of the second, and `lockctl break` of that lock ends locks of the second.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is empty or ends with a slash.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Result<Self> {
        self.prefix = prefix.into();
        if self.prefix.is_empty() || self.prefix.ends_with('/') {
            let message = format!("{:?} is no prefix: it is empty or ends with /", self.prefix);
            return Err(Error::config(message));
        }
        Ok(self)
    }

    /// Sets the timeout of the cluster's first reply, including TLS, login and trying all servers, 100 ms
    /// to 1 min. Default: 10 s.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.connect_timeout = duration_in_range("connect-timeout", timeout, TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// Sets the timeout of one request, 100 ms to 1 min, after which it fails with
    /// [`Unavailable`](polylock_core::ErrorKind::Unavailable). Default: 10 s.
    ///
    /// The client gives up a server that does not answer after 2 s, and asks the next one. The election of
    /// a leader takes one to two seconds unless the cluster is configured otherwise: a shorter timeout
    /// turns it into errors.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.timeout = duration_in_range("timeout", timeout, TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// Logs in as a user of etcd. Default: no login.
    ///
    /// The user needs a role that may read and write the keys that begin with the prefix and a slash.
    /// While the cluster has authentication disabled, the client goes on without the login.
    #[must_use]
    pub fn with_login(self, username: impl Into<String>, password: impl Into<String>) -> Self {
        let login = Login::new().with_username(username).with_password(password);
        self.with_login_source(login.into())
    }

    /// Gets the user and the password from `credentials` for each connection, for passwords that change.
    /// Default: none.
    ///
    /// The URL parameter `password-file` does this with a [`PasswordFile`](polylock_core::PasswordFile).
    #[must_use]
    pub fn with_credentials(self, credentials: impl Credentials) -> Self {
        self.with_login_source(LoginSource::credentials(credentials))
    }

    fn with_login_source(mut self, source: LoginSource) -> Self {
        self.login = Some(source);
        self
    }

    /// Enables TLS. Default: plain TCP.
    ///
    /// Certificates are verified against the hosts, with the certificate authorities of the system unless
    /// [`with_tls_ca`](Self::with_tls_ca) names others. Needs the feature `tls`.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls.get_or_insert_default();
        self
    }

    /// Enables TLS, and trusts the certificate authorities of a PEM file. Default: those of the system.
    #[must_use]
    pub fn with_tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().ca = Some(file.into());
        self
    }

    /// Enables TLS with a client certificate, from the PEM files of its chain and of its key. Default:
    /// none, which servers with `--client-cert-auth` refuse.
    #[must_use]
    pub fn with_tls_identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().identity = Some((cert.into(), key.into()));
        self
    }

    /// Refuses clusters that fail the start-up checks. Default: a warning.
    #[must_use]
    pub fn with_strict_checks(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Replaces the engine of this process, for tests that bend time.
    #[must_use]
    pub fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }
}
