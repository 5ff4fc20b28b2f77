#[cfg(test)]
mod tests;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use polylock_core::engine::Engine;
use polylock_core::{Credentials, Error, ErrorKind, Login, LoginSource, Result, TlsFiles};
use zookeeper_client::Connector;

pub(crate) use self::url::{PORT, SCHEMES};

/// Which ensemble has the locks, and how it is used.
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
    /// What is asked for; the ensemble answers with what it grants.
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// How long one request may take.
    pub(crate) timeout: Duration,
    pub(crate) connector: Option<OwnConnector>,
    pub(crate) login: Option<(Auth, LoginSource)>,
    /// As it is set; [`ZooKeeperConfig::access`] has the default.
    access: Option<NodeAccess>,
    pub(crate) compat: Compat,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) strict: bool,
    pub(crate) engine: Option<Engine>,
}

impl ZooKeeperConfig {
    /// Where the locks are, unless set.
    pub const DEFAULT_ROOT: &'static str = "/locks";

    /// After which silence of a client its locks are free, unless set.
    pub const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(20);

    /// How long opening the first session may take, unless set.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

    /// How long one request may take, unless set.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

    /// How long the reply to a heartbeat may take, again and again, for a session to last.
    ///
    /// A heartbeat leaves each seventh of the session timeout, and its reply proves the one that left
    /// two before it.
    #[must_use]
    pub fn heartbeat_timeout(session_timeout: Duration) -> Duration {
        session_timeout / 8
    }

    /// Names servers of one ensemble, by host and port; one is enough, and all of them are better.
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
    /// It is created if it is missing, with all that is above it, and with the access of the locks.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if it is no absolute path, or belongs to ZooKeeper.
    pub fn with_root(mut self, path: impl AsRef<str>) -> Result<Self> {
        self.root = root(path.as_ref())?;
        Ok(self)
    }

    /// Sets after which silence of this client ZooKeeper frees its locks, 200 ms to 10 min. Default:
    /// 20 s.
    ///
    /// ZooKeeper grants something between 2 and 20 of its ticks, which are 2 s unless configured: 4 s
    /// to 40 s. All locks of one connection share the session, and with it this time.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_session_timeout(mut self, timeout: Duration) -> Result<Self> {
        let range = (Duration::from_millis(200), Duration::from_secs(600));
        self.session_timeout = in_range("session-timeout", timeout, range)?;
        Ok(self)
    }

    /// Sets how long opening a session may take, with TLS, login and all servers tried, 100 ms to
    /// 1 min. Default: 15 s.
    ///
    /// Where nothing listens at any of the hosts, it fails at once; where a server is there and takes
    /// no sessions, such as while a leader is elected, it is asked again until this time is over.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.connect_timeout = in_range("connect-timeout", timeout, SECONDS)?;
        Ok(self)
    }

    /// Sets how long one request may take, 100 ms to 1 min, before it is
    /// [`Unavailable`](ErrorKind::Unavailable). Default: 10 s.
    ///
    /// A waiter in the queue waits longer for a reply, until its wait or its session ends.
    ///
    /// A session survives the loss of a server, and the requests that come meanwhile wait for the
    /// next one. A server that hangs is noticed after two fifths of the session time-out at the
    /// latest: 8 s for the default one, which is why this default is longer.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.timeout = in_range("timeout", timeout, SECONDS)?;
        Ok(self)
    }

    /// Opens sessions by a connector of the application: with what it authenticates by (any number
    /// of schemes, SASL with DIGEST-MD5 or GSSAPI), its TLS options and its server version. Default:
    /// one without any of them.
    ///
    /// Of the connector, these are replaced by those of this configuration, because locks depend on
    /// them: the session timeout, the connection timeout, to fail once all servers have been tried,
    /// and no read-only sessions. Its TLS options are used with [`with_tls`](Self::with_tls), and
    /// replaced by [`with_tls_ca`](Self::with_tls_ca); why a server refuses them is in the log of the
    /// server only. [`with_digest_login`](Self::with_digest_login) adds an identity, and
    /// [`with_sasl_login`](Self::with_sasl_login) replaces that of SASL. Locks have a session of their
    /// own: that of a client of the application is not used.
    ///
    /// [`NodeAccess::Creator`] is the default with a connector: one that authenticates by nothing needs
    /// [`NodeAccess::Everybody`].
    ///
    /// `zookeeper-client` is a public dependency here: both versions have to agree, 0.11.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if it resumes a session, which would be used from two
    /// places, or detaches sessions, whose locks would outlast a client that closes.
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
        // It has no methods that tell.
        let options = format!("{connector:?}");
        for (option, message) in [
            (
                "session: Some(",
                "a connector that resumes a session cannot open one for locks",
            ),
            (
                "detached: true",
                "a connector that detaches sessions leaves locks held when a client closes",
            ),
        ] {
            if options.contains(option) {
                return Err(wrong(message));
            }
        }
        self.connector = Some(OwnConnector(connector));
        Ok(self)
    }

    /// Logs in by the scheme `digest`. Default: no login.
    ///
    /// ZooKeeper has no list of such users and takes any password: what differs is another identity,
    /// which the nodes of the locks refuse.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the user is empty or has a colon.
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
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the user is empty, or has a quote or a
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

    /// Asks for the user and the password of SASL with DIGEST-MD5 for each session that is opened, for
    /// passwords that change. Default: none.
    ///
    /// A session keeps its login when it connects to another server; if that server takes only a
    /// new password, the session has ended, its locks are lost, and the next request opens a session with
    /// a new login.
    ///
    /// The parameter `password-file` of URLs with `auth=sasl` is this with a
    /// [`PasswordFile`](polylock_core::PasswordFile). There is none for the scheme `digest`: another
    /// password is another identity there, which the locks of the former one refuse. Needs the feature
    /// `sasl`.
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

    /// Names nodes as another client does. Default: [`Compat::Curator`].
    #[must_use]
    pub fn with_compat(mut self, compat: Compat) -> Self {
        self.compat = compat;
        self
    }

    /// Speaks TLS. Default: plain TCP.
    ///
    /// Names are verified against the hosts. There is no list of authorities to fall back on: see
    /// [`with_tls_ca`](Self::with_tls_ca). Needs the feature `tls`.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls.get_or_insert_default();
        self
    }

    /// Speaks TLS, and trusts the authorities of a PEM file. It must be set for TLS.
    #[must_use]
    pub fn with_tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().ca = Some(file.into());
        self
    }

    /// Speaks TLS, and shows servers a certificate, by the PEM files of its chain and of its key.
    /// Default: none, which ZooKeeper refuses unless `ssl.clientAuth` is `want` or `none`.
    #[must_use]
    pub fn with_tls_identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().identity = Some((cert.into(), key.into()));
        self
    }

    /// Refuses ensembles that the start-up checks find fault with. Default: a warning.
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

const SECONDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

fn in_range(name: &str, timeout: Duration, range: (Duration, Duration)) -> Result<Duration> {
    let (least, most) = range;
    if timeout < least || timeout > most {
        let message = format!("{name} must be between {least:?} and {most:?}, not {timeout:?}");
        return Err(wrong(message));
    }
    Ok(timeout)
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

/// Checks a path that is to have the locks, and takes a slash off its end.
fn root(path: &str) -> Result<String> {
    let names = match path.strip_prefix('/') {
        Some("") => return Ok("/".to_owned()),
        Some(names) => names.strip_suffix('/').unwrap_or(names),
        None => return Err(wrong(format!("the path {path:?} does not begin with /"))),
    };
    for name in names.split('/') {
        if matches!(name, "" | "." | "..") || name.chars().any(is_refused) {
            return Err(wrong(format!(
                "{path:?} is no path of ZooKeeper: there is a name in it that is empty, . or .., or has \
                 control characters"
            )));
        }
    }
    if names == "zookeeper" || names.starts_with("zookeeper/") {
        return Err(wrong(
            "/zookeeper belongs to ZooKeeper itself, name another path",
        ));
    }
    Ok(format!("/{names}"))
}

/// What ZooKeeper refuses in a name.
fn is_refused(c: char) -> bool {
    matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff)
}

/// How the nodes of a lock are named: as another client names them, so that both take turns.
///
/// All contenders of a lock must use the same one. Whatever is chosen, one key is one directory under
/// the root, and one contender is one ephemeral sequential node in it.
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
/// It is the access control list of the nodes that this client creates; it changes none that exist.
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
    /// The same, and every client may read: list and watch locks, and not take or break them.
    CreatorAndReaders,
    /// Everybody may do everything. The default without a login.
    Everybody,
}

/// A connector of the application; its debug output may have a password of SASL.
#[derive(Clone)]
pub(crate) struct OwnConnector(pub(crate) Connector);

impl OwnConnector {
    /// Whether it has TLS options, by its debug output: it has no methods that tell.
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
    /// Any user and password are an identity; a server compares, and has no list of them.
    Digest,
    /// SASL with DIGEST-MD5: the server has a list of users.
    Sasl,
}

impl Auth {
    /// The user and the password of a login that this client can send.
    pub(crate) fn check(self, login: &Login) -> Result<(&str, &str)> {
        let (Some(username), Some(password)) = (login.username(), login.password()) else {
            return Err(wrong("a login at ZooKeeper has a user and a password"));
        };
        match self {
            Self::Digest if username.is_empty() || username.contains(':') => {
                Err(wrong("a user of auth=digest has a name without a colon"))
            }
            // The client does not escape them.
            Self::Sasl if username.is_empty() || username.contains(['"', '\\']) => Err(wrong(
                "a user of auth=sasl has a name without quotes and backslashes",
            )),
            _ => Ok((username, password)),
        }
    }
}
