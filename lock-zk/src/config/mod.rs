#[cfg(test)]
mod tests;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use polylock_core::engine::{Engine, TIMEOUT_RANGE, duration_in_range};
use polylock_core::{Credentials, Error, Login, LoginSource, Result, TlsFiles};
use zookeeper_client::Connector;

pub(crate) use self::url::{PORT, SCHEMES};

/// The configuration of locks in a ZooKeeper ensemble.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_zk::ZooKeeperConfig;
///
/// # fn main() -> polylock_core::Result<()> {
/// let config = ZooKeeperConfig::new([("zk1", 2181), ("zk2", 2181), ("zk3", 2181)])
///     .with_root("/apps/orders/locks")?
///     .with_digest_login("orders", "s3cret")?
///     .with_session_timeout(Duration::from_secs(10))?;
/// assert!(!format!("{config:?}").contains("s3cret"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ZooKeeperConfig {
    pub(crate) hosts: Vec<(String, u16)>,
    /// The path of the directory that has one directory per key; `/` is the root of ZooKeeper.
    pub(crate) root: String,
    /// The requested timeout; the ensemble may grant another one.
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// How long one request may take.
    pub(crate) timeout: Duration,
    pub(crate) connector: Option<OwnConnector>,
    pub(crate) login: Option<(Auth, LoginSource)>,
    /// `None` unless set; [`ZooKeeperConfig::access`] has the default.
    access: Option<NodeAccess>,
    pub(crate) compat: Compat,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) strict: bool,
    pub(crate) engine: Option<Engine>,
}

impl ZooKeeperConfig {
    /// The default path of the locks.
    pub const DEFAULT_ROOT: &'static str = "/locks";

    /// The default session timeout: the locks of a client are free when it is silent for longer.
    pub const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(20);

    /// The default timeout for opening the first session.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

    /// The default timeout of one request.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

    /// Returns how long every reply to a heartbeat may take for a session to last.
    ///
    /// A heartbeat is sent every seventh of the session timeout, and its reply confirms the heartbeat that
    /// was sent two before it.
    #[must_use]
    pub fn heartbeat_timeout(session_timeout: Duration) -> Duration {
        session_timeout / 8
    }

    /// Names servers of one ensemble, by host and port. One is enough, but all of them are better.
    #[must_use]
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = (H, u16)>) -> Self {
        let hosts = hosts.into_iter();
        Self {
            hosts: hosts.map(|(host, port)| (host.into(), port)).collect(),
            root: Self::DEFAULT_ROOT.to_owned(),
            session_timeout: Self::DEFAULT_SESSION_TIMEOUT,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            timeout: Self::DEFAULT_TIMEOUT,
            connector: None,
            login: None,
            access: None,
            compat: Compat::default(),
            tls: None,
            strict: false,
            engine: None,
        }
    }

    /// Sets the path that has one directory per key. Default: `/locks`.
    ///
    /// If the path is missing, it is created with its parents, and with the access of the locks.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is no absolute path, or belongs to
    /// ZooKeeper.
    pub fn with_root(mut self, path: impl AsRef<str>) -> Result<Self> {
        self.root = root(path.as_ref())?;
        Ok(self)
    }

    /// Sets the session timeout: ZooKeeper frees the locks of this client when it is silent for longer, 200
    /// ms to 10 min. Default: 20 s.
    ///
    /// ZooKeeper grants between 2 and 20 of its ticks, which are 2 s unless configured: 4 s to 40 s. All
    /// locks of one connection share the session and its timeout.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_session_timeout(mut self, timeout: Duration) -> Result<Self> {
        let range = (Duration::from_millis(200), Duration::from_secs(600));
        self.session_timeout = duration_in_range("session-timeout", timeout, range)?;
        Ok(self)
    }

    /// Sets the timeout for opening a session, including TLS, login and trying all servers, 100 ms to 1
    /// min. Default: 15 s.
    ///
    /// If no host listens, opening fails at once. If a server accepts no sessions, such as during the
    /// election of a leader, the client retries until this timeout.
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
    /// A waiter in the queue waits longer for a reply, until its wait or its session ends.
    ///
    /// A session survives the loss of a server, and requests meanwhile wait for the next server. A hanging
    /// server is detected within two fifths of the session timeout: 8 s by default, which is why this
    /// default is longer.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.timeout = duration_in_range("timeout", timeout, TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// Opens sessions with a connector of the application: with its authentication (any number of schemes,
    /// SASL with DIGEST-MD5 or GSSAPI), its TLS options and its server version. Default: a connector
    /// without any of them.
    ///
    /// Locks depend on some settings, so this configuration replaces those of the connector: the session
    /// timeout, the connection timeout, to fail once all servers have been tried, and no read-only
    /// sessions. TLS options of the connector are used with [`with_tls`](Self::with_tls), and replaced by
    /// [`with_tls_ca`](Self::with_tls_ca); only the log of the server says why it refuses them.
    /// [`with_digest_login`](Self::with_digest_login) adds an identity, and
    /// [`with_sasl_login`](Self::with_sasl_login) replaces that of SASL. Locks have a session of their own,
    /// not that of a client of the application.
    ///
    /// [`NodeAccess::Creator`] is the default with a connector. A connector without authentication needs
    /// [`NodeAccess::Everybody`].
    ///
    /// `zookeeper-client` is a public dependency here: the application must use the same version, 0.11.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the connector resumes a session, which
    /// would be used from two places, or detaches sessions, whose locks would outlive a client that closes.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use polylock_zk::{ZooKeeper, ZooKeeperConfig};
    /// use zookeeper_client::Client;
    ///
    /// # async fn example() -> polylock_core::Result<()> {
    /// let connector = Client::connector().with_auth("digest", b"orders:s3cret");
    /// let config = ZooKeeperConfig::new([("zk1", 2181), ("zk2", 2181), ("zk3", 2181)])
    ///     .with_connector(connector)?;
    /// let locks = ZooKeeper::connect(config).await?;
    /// # let _ = locks;
    /// # Ok(()) }
    /// ```
    pub fn with_connector(mut self, connector: Connector) -> Result<Self> {
        // `Connector` has no getters.
        let options = format!("{connector:?}");
        if options.contains("session: Some(") {
            let message = "a connector that resumes a session cannot open one for locks";
            return Err(Error::config(message));
        }
        if options.contains("detached: true") {
            let message =
                "a connector that detaches sessions leaves locks held when a client closes";
            return Err(Error::config(message));
        }
        self.connector = Some(OwnConnector(connector));
        Ok(self)
    }

    /// Logs in by the scheme `digest`. Default: no login.
    ///
    /// ZooKeeper has no list of such users and takes any password. A different password is a different
    /// identity, which has no access to the nodes of the locks.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the user is empty or has a colon.
    pub fn with_digest_login(
        mut self,
        username: impl Into<String>,
        password: impl Into<String>,
    ) -> Result<Self> {
        let login = Login::new().with_username(username).with_password(password);
        Auth::Digest.check(&login)?;
        self.login = Some((Auth::Digest, login.into()));
        Ok(self)
    }

    /// Logs in by SASL with DIGEST-MD5, for servers that have a list of users. Default: no login.
    ///
    /// Needs the feature `sasl`.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the user is empty, or has a quote or a
    /// backslash, which the client does not escape.
    pub fn with_sasl_login(
        mut self,
        username: impl Into<String>,
        password: impl Into<String>,
    ) -> Result<Self> {
        let login = Login::new().with_username(username).with_password(password);
        Auth::Sasl.check(&login)?;
        self.login = Some((Auth::Sasl, login.into()));
        Ok(self)
    }

    /// Gets the user and the password of SASL with DIGEST-MD5 from `credentials` for each new session, for
    /// passwords that change. Default: none.
    ///
    /// A session keeps its login when it connects to another server. If that server takes only a new
    /// password, the session ends, its locks are lost, and the next request opens a session with a new
    /// login.
    ///
    /// The URL parameter `password-file` with `auth=sasl` does this with a
    /// [`PasswordFile`](polylock_core::PasswordFile). The scheme `digest` has no such parameter: another
    /// password is another identity there, without access to the former locks. Needs the feature `sasl`.
    #[must_use]
    pub fn with_sasl_credentials(self, credentials: impl Credentials) -> Self {
        self.with_sasl_source(LoginSource::credentials(credentials))
    }

    fn with_sasl_source(mut self, source: LoginSource) -> Self {
        self.login = Some((Auth::Sasl, source));
        self
    }

    /// Sets the access to the nodes of the locks. Default: [`NodeAccess::Creator`] with a login, a
    /// certificate or a connector of the application, else [`NodeAccess::Everybody`].
    #[must_use]
    pub fn with_access(mut self, access: NodeAccess) -> Self {
        self.access = Some(access);
        self
    }

    /// Sets the naming scheme of nodes. Default: [`Compat::Curator`].
    #[must_use]
    pub fn with_compat(mut self, compat: Compat) -> Self {
        self.compat = compat;
        self
    }

    /// Enables TLS. Default: plain TCP.
    ///
    /// Certificates are verified against the hosts. There are no default certificate authorities: see
    /// [`with_tls_ca`](Self::with_tls_ca). Needs the feature `tls`.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls.get_or_insert_default();
        self
    }

    /// Enables TLS, and trusts the certificate authorities of a PEM file. Required for TLS.
    #[must_use]
    pub fn with_tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().ca = Some(file.into());
        self
    }

    /// Enables TLS with a client certificate, from the PEM files of its chain and of its key. Default:
    /// none, which ZooKeeper refuses unless `ssl.clientAuth` is `want` or `none`.
    #[must_use]
    pub fn with_tls_identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().identity = Some((cert.into(), key.into()));
        self
    }

    /// Refuses ensembles that fail the start-up checks. Default: a warning.
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

    /// The access to the nodes of the locks.
    pub(crate) fn access(&self) -> NodeAccess {
        match self.access {
            Some(access) => access,
            None if self.has_identity() => NodeAccess::Creator,
            None => NodeAccess::Everybody,
        }
    }

    /// Whether every client may touch the nodes, and the configuration does not say so.
    pub(crate) fn is_open_by_default(&self) -> bool {
        self.access.is_none() && !self.has_identity()
    }

    /// Whether this client authenticates.
    fn has_identity(&self) -> bool {
        let tls = self.tls.as_ref();
        self.login.is_some()
            || self.connector.is_some()
            || tls.is_some_and(|tls| tls.identity.is_some())
    }
}

/// Checks a path for the locks, and strips a slash from its end.
fn root(path: &str) -> Result<String> {
    let names = match path.strip_prefix('/') {
        Some("") => return Ok("/".to_owned()),
        Some(names) => names.strip_suffix('/').unwrap_or(names),
        None => {
            return Err(Error::config(format!(
                "the path {path:?} does not begin with /"
            )));
        }
    };
    for name in names.split('/') {
        if matches!(name, "" | "." | "..") || name.chars().any(is_refused) {
            return Err(Error::config(format!(
                "{path:?} is no path of ZooKeeper: there is a name in it that is empty, . or .., or has \
                 control characters"
            )));
        }
    }
    if names == "zookeeper" || names.starts_with("zookeeper/") {
        return Err(Error::config(
            "/zookeeper belongs to ZooKeeper itself, name another path",
        ));
    }
    Ok(format!("/{names}"))
}

/// What ZooKeeper refuses in a name.
fn is_refused(c: char) -> bool {
    matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff)
}

/// The naming scheme of a lock's nodes, as in another client library, so that both exclude each other.
///
/// All contenders of a lock must use the same scheme. In every scheme, a key is a directory under the root,
/// and a contender is an ephemeral sequential node in it.
///
/// # Examples
///
/// Locks that exclude those of Python programs with Kazoo:
///
/// ```no_run
/// use polylock_core::prelude::*;
/// use polylock_zk::{Compat, ZooKeeper, ZooKeeperConfig};
///
/// # async fn example() -> polylock_core::Result<()> {
/// let config = ZooKeeperConfig::new([("zk1", 2181), ("zk2", 2181), ("zk3", 2181)])
///     .with_root("/apps/orders/locks")?
///     .with_compat(Compat::Kazoo);
/// let locks = ZooKeeper::connect(config).await?;
/// let guard = locks.lock("cleanup").await?; // Lock(client, "/apps/orders/locks/cleanup")
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Compat {
    /// `_c_<uuid>-lock-<sequence>`: exclusive locks exclude the `InterProcessMutex` of Apache Curator.
    /// The default.
    #[default]
    Curator,
    /// `_c_<uuid>-__WRIT__<sequence>` and `-__READ__`: the `InterProcessReadWriteLock` of Apache
    /// Curator.
    CuratorReadWrite,
    /// `<32 hex digits>__lock__<sequence>` and `__rlock__`: the `Lock`, `WriteLock` and `ReadLock` of
    /// Kazoo. Its `Lock` does not see shared locks; its `WriteLock` does.
    ///
    /// Directories stay when they are unused: a `Lock` of Kazoo ensures its directory once, and
    /// fails with `NoNodeError` if the server removes it later. With the other names ZooKeeper
    /// removes them.
    Kazoo,
}

/// The clients that may read and change the nodes of locks, apart from ZooKeeper's superuser.
///
/// It is the access control list of new nodes of this client; existing nodes do not change.
///
/// # Examples
///
/// Others may see the holders of locks, and only this service may acquire them:
///
/// ```no_run
/// use polylock_zk::{NodeAccess, ZooKeeper, ZooKeeperConfig};
///
/// # async fn example() -> polylock_core::Result<()> {
/// let config = ZooKeeperConfig::new([("zk1", 2181), ("zk2", 2181), ("zk3", 2181)])
///     .with_digest_login("orders", "s3cret")?
///     .with_access(NodeAccess::CreatorAndReaders);
/// let locks = ZooKeeper::connect(config).await?;
/// # let _ = locks;
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NodeAccess {
    /// Clients with the identity that created the node. The default with a login, a certificate or a
    /// connector of the application.
    Creator,
    /// Like `Creator`, but every client may also read: list and watch locks, not acquire or break them.
    CreatorAndReaders,
    /// Everybody may do everything. The default without a login.
    Everybody,
}

/// A connector of the application; its debug output may have a password of SASL.
#[derive(Clone)]
pub(crate) struct OwnConnector(pub(crate) Connector);

impl OwnConnector {
    /// Whether it has TLS options, by its debug output: `Connector` has no getters.
    #[cfg(feature = "tls")]
    pub(crate) fn has_tls(&self) -> bool {
        !format!("{:?}", self.0).contains("tls: None")
    }
}

impl fmt::Debug for OwnConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector(***)")
    }
}

/// What a login is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Auth {
    /// Any user and password form an identity, which servers compare; they have no list of users.
    Digest,
    /// SASL with DIGEST-MD5: the server has a list of users.
    Sasl,
}

impl Auth {
    /// Checks that this client can send a login, and returns its user and password.
    pub(crate) fn check(self, login: &Login) -> Result<(&str, &str)> {
        let (Some(username), Some(password)) = (login.username(), login.password()) else {
            return Err(Error::config(
                "a login at ZooKeeper has a user and a password",
            ));
        };
        match self {
            Self::Digest if username.is_empty() || username.contains(':') => Err(Error::config(
                "a user of auth=digest has a name without a colon",
            )),
            // The client does not escape them.
            Self::Sasl if username.is_empty() || username.contains(['"', '\\']) => Err(
                Error::config("a user of auth=sasl has a name without quotes and backslashes"),
            ),
            _ => Ok((username, password)),
        }
    }
}
