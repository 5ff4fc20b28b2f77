mod url;

use std::path::PathBuf;
use std::time::Duration;

use polylock_core::engine::{Engine, TIMEOUT_RANGE, duration_in_range};
use polylock_core::{Credentials, Error, Login, LoginSource, Result, TlsFiles};
use redis::{Client, ConnectionAddr};

pub(crate) use self::url::{SCHEMES, default_port};

/// Configuration of the servers that store the locks, and of how they are used.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_redis::RedisConfig;
///
/// # fn main() -> polylock_core::Result<()> {
/// let config = RedisConfig::new("cache.internal", 6379)
///     .with_login("locks", "s3cret")
///     .with_timeout(Duration::from_millis(500))?;
/// assert!(!format!("{config:?}").contains("s3cret"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisConfig {
    pub(crate) servers: Servers,
    /// The address of the application's client with its TLS settings, or the address of the only server.
    pub(crate) client_address: Option<ConnectionAddr>,
    pub(crate) login: LoginSource,
    pub(crate) sentinel_login: LoginSource,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) database: u32,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) node_timeout: Duration,
    pub(crate) rejoin_delay: Duration,
    pub(crate) resp3: bool,
    pub(crate) push: bool,
    pub(crate) replica_acks: u32,
    pub(crate) replica_ack_timeout: Duration,
    pub(crate) retention: Duration,
    pub(crate) strict: bool,
    pub(crate) engine: Option<Engine>,
}

/// The range of the timeout of one node or of the replicas.
const NODE_TIMEOUT_RANGE: (Duration, Duration) = (Duration::from_millis(10), TIMEOUT_RANGE.1);

/// The min time for which the counter of a lock is kept.
const MIN_RETENTION: Duration = Duration::from_secs(60);

/// The max time for which anything is kept: the server cannot store a later time than this and now.
pub(crate) const MAX_RETENTION: Duration = Duration::from_millis(i64::MAX.unsigned_abs() / 2);

/// How the servers belong together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Servers {
    Cluster(Vec<Endpoint>),
    /// Independent masters.
    Quorum(Vec<Endpoint>),
    Sentinel {
        sentinels: Vec<Endpoint>,
        master: String,
    },
    Standalone(Endpoint),
}

/// Where one server listens.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl RedisConfig {
    /// How long one operation may take, unless set.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    /// How long making a connection may take, unless set.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

    /// How long a quorum waits for one of its nodes, unless set.
    pub const DEFAULT_NODE_TIMEOUT: Duration = Duration::from_millis(250);

    /// How long a node of a quorum does not vote after it was first seen, unless set.
    pub const DEFAULT_REJOIN_DELAY: Duration = Duration::from_secs(30);

    /// How long replicas may take to acknowledge, unless set.
    pub const DEFAULT_REPLICA_ACK_TIMEOUT: Duration = Duration::from_millis(500);

    /// How long the nodes of a quorum keep the counter of an unused lock, unless set.
    pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    /// Names one server.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self::of(Servers::Standalone(Endpoint::tcp(host, port)))
    }

    /// Names one server by its socket file.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::of(Servers::Standalone(Endpoint::Unix(path.into())))
    }

    /// Names the Sentinels and their master.
    ///
    /// Name all Sentinels. A grant or a renewal counts only while a majority of all Sentinels names the
    /// master. Sentinels missing here are discovered if the named ones know them.
    #[must_use]
    pub fn sentinel<H: Into<String>>(
        sentinels: impl IntoIterator<Item = (H, u16)>,
        master: impl Into<String>,
    ) -> Self {
        Self::of(Servers::Sentinel {
            sentinels: endpoints(sentinels),
            master: master.into(),
        })
    }

    /// Names some nodes of a cluster; the others are found from them.
    #[must_use]
    pub fn cluster<H: Into<String>>(nodes: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self::of(Servers::Cluster(endpoints(nodes)))
    }

    /// Names the independent masters of a quorum, all of them: at least three.
    #[doc(alias = "redlock")]
    #[must_use]
    pub fn quorum<H: Into<String>>(masters: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self::of(Servers::Quorum(endpoints(masters)))
    }

    /// Uses the server of the application's client, with its address, TLS settings, database and login.
    ///
    /// Locks have a connection of their own, with the timeouts of this configuration, so that a lock
    /// never waits behind a slow command of the application. They have neither the layers of a URL nor its namespace
    /// `lock`: use [`Registry::stack`](polylock_core::Registry::stack). The client itself is not used. Credentials
    /// that the application sets on its connections instead of the client go to
    /// [`with_credentials`](Self::with_credentials).
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the kind of the address or of the
    /// database is unknown.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use polylock_redis::{Redis, RedisConfig};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://cache.internal/2")?;
    /// let locks = Redis::connect(RedisConfig::from_client(&client)?).await?;
    /// // These are the locks of redis://cache.internal/2 too.
    /// let locks = polylock_core::Registry::new().stack(Arc::new(locks), "lock")?;
    /// # Ok(()) }
    /// ```
    pub fn from_client(client: &Client) -> Result<Self> {
        let info = client.get_connection_info();
        let (address, redis) = (info.addr(), info.redis_settings());
        let endpoint = match address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Endpoint::tcp(host, *port)
            }
            ConnectionAddr::Unix(path) => Endpoint::Unix(path.clone()),
            _ => {
                let message = format!("the address {address} is of no known kind");
                return Err(Error::config(message));
            }
        };
        let database = u32::try_from(redis.db())
            .map_err(|_| Error::config(format!("there is no database {}", redis.db())))?;
        let mut login = Login::new();
        if let Some(username) = redis.username() {
            login = login.with_username(username);
        }
        if let Some(password) = redis.password() {
            login = login.with_password(password);
        }
        Ok(Self {
            client_address: Some(address.clone()),
            login: login.into(),
            ..Self::of(Servers::Standalone(endpoint)).with_database(database)
        })
    }

    fn of(servers: Servers) -> Self {
        Self {
            servers,
            client_address: None,
            login: LoginSource::default(),
            sentinel_login: LoginSource::default(),
            tls: None,
            database: 0,
            timeout: Self::DEFAULT_TIMEOUT,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            node_timeout: Self::DEFAULT_NODE_TIMEOUT,
            rejoin_delay: Self::DEFAULT_REJOIN_DELAY,
            resp3: true,
            push: true,
            replica_acks: 0,
            replica_ack_timeout: Self::DEFAULT_REPLICA_ACK_TIMEOUT,
            retention: Self::DEFAULT_RETENTION,
            strict: false,
            engine: None,
        }
    }

    /// Sets the user and the password. Default: none.
    #[must_use]
    pub fn with_login(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        let login = Login::new().with_username(username);
        self.login = login.with_password(password).into();
        self
    }

    /// Sets the password of the default user. Default: none.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        self.login = Login::new().with_password(password).into();
        self
    }

    /// Requests the user and the password for each connection, for passwords that change. Default: none.
    ///
    /// The URL parameter `password-file` does this with a [`PasswordFile`](polylock_core::PasswordFile).
    #[must_use]
    pub fn with_credentials(mut self, credentials: impl Credentials) -> Self {
        self.login = LoginSource::credentials(credentials);
        self
    }

    /// Sets the user and the password for the Sentinels, which have their own. Default: none.
    #[must_use]
    pub fn with_sentinel_login(
        mut self,
        username: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        let login = Login::new().with_username(username);
        self.sentinel_login = login.with_password(password).into();
        self
    }

    /// The same as [`with_credentials`](Self::with_credentials) for the Sentinels.
    #[must_use]
    pub fn with_sentinel_credentials(mut self, credentials: impl Credentials) -> Self {
        self.sentinel_login = LoginSource::credentials(credentials);
        self
    }

    /// Uses TLS with the servers and with Sentinels. Default: plain TCP, or the setting of the client
    /// for [`from_client`](Self::from_client).
    ///
    /// Certificates are verified against the authorities of the system. Names are verified against the
    /// host of the URL, for cluster nodes and the master of Sentinels against the reported host.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls.get_or_insert_default();
        self
    }

    /// Uses TLS, and trusts only the authorities of a PEM file. Default: the authorities of the system.
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

    /// Selects a database by its number. Default: 0, the only one that a cluster has.
    ///
    /// Locks of the same key in two databases are two locks.
    #[must_use]
    pub fn with_database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    /// Sets how long one operation may take, 100 ms to 1 min, before it fails with
    /// [`Unavailable`](polylock_core::ErrorKind::Unavailable). Default: 1 s.
    ///
    /// A shorter timeout detects a hanging server earlier, but mistakes a slow server for a dead one
    /// more often. A longer one leaves fewer attempts to renew within a ttl. After a timeout the
    /// connection is replaced.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.timeout = duration_in_range("timeout", timeout, TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// Sets the timeout for opening a connection, with TLS and login, 100 ms to 1 min. Default: 1 s.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.connect_timeout = duration_in_range("connect-timeout", timeout, TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// Sets how long a quorum waits for one of its nodes, 10 ms to 1 min. Default: 250 ms.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_node_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.node_timeout = duration_in_range("node-timeout", timeout, NODE_TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// Sets how long a node of a quorum does not vote after it was first seen, up to one day. Default:
    /// 30 s.
    ///
    /// A node that restarts may have forgotten a lock, and could then vote for a second holder. It does
    /// not vote until every lease that it may have forgotten has expired. Requests with a longer ttl are
    /// therefore refused, and all clients of a quorum must use the same delay.
    ///
    /// The delay counts from the first reply of a run of the node to any client. Clients measure it by
    /// their boot clocks, and store the known age on the node. The first clients of a new quorum wait
    /// for the whole delay. With zero, nodes vote at once: for nodes that persist every write
    /// (`appendfsync always` and `no-appendfsync-on-rewrite no`), and for new quorums without
    /// holders.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is out of range.
    pub fn with_rejoin_delay(mut self, delay: Duration) -> Result<Self> {
        let range = (Duration::ZERO, Duration::from_secs(86_400));
        self.rejoin_delay = duration_in_range("rejoin-delay", delay, range)?;
        Ok(self)
    }

    /// Requires this many replicas to store a lock before it counts as acquired or renewed. `WAIT` waits
    /// for them up to `timeout`, 10 ms to 1 min. Default: 0, and 500 ms.
    ///
    /// Each acquisition takes as long as the replicas do; more than eight at a time in one runtime wait for
    /// each other. While too few of them are connected, no lock can be acquired, and held locks are lost at
    /// the end of their leases. Replica acks make the loss of a lock in a failover less likely but not
    /// impossible: another replica may be promoted.
    ///
    /// A renewal waits for less, to leave time for its retries: up to 7.5% of a ttl of 5 s or less, 375 ms
    /// with a ttl of up to 30 s, and 1/80 of a longer ttl, at most 1.875 s. Replicas that take longer than
    /// this cost the lock, although they delay only its grant.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the time is out of range.
    pub fn with_replica_acks(mut self, replicas: u32, timeout: Duration) -> Result<Self> {
        self.replica_ack_timeout =
            duration_in_range("replica-ack-timeout", timeout, NODE_TIMEOUT_RANGE)?;
        self.replica_acks = replicas;
        Ok(self)
    }

    /// Sets how long the nodes of a quorum keep the fencing counter of a lock after its last grant, min
    /// 1 min. Default: 7 days. Other servers have one counter for many locks, and never delete it.
    ///
    /// Tokens keep increasing without the counter as long as the clock of the server does. The counter
    /// also identifies requests that arrive twice. A time that the server cannot store counts as the longest
    /// one that it can, which is millions of years.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention.clamp(MIN_RETENTION, MAX_RETENTION);
        self
    }

    /// Uses RESP2, which has no push messages: waiters poll until the lock is free. Default: RESP3, or
    /// RESP2 where a server does not know RESP3.
    #[must_use]
    pub fn with_resp2(mut self) -> Self {
        self.resp3 = false;
        self
    }

    /// Never subscribes to a channel: waiters poll until the lock is free. Default: waiters are
    /// notified.
    #[must_use]
    pub fn without_push(mut self) -> Self {
        self.push = false;
        self
    }

    /// Refuses servers that fail a start-up check. Default: logs a warning.
    #[must_use]
    pub fn with_strict_checks(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Replaces the engine of this process, for tests that control the clock.
    #[must_use]
    pub fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// The masters of a quorum.
    pub(crate) fn masters(&self) -> Result<&[Endpoint]> {
        let wrong = |message: &str| Err(Error::config(message));
        let Servers::Quorum(masters) = &self.servers else {
            return wrong("a quorum is made of independent masters: use RedisConfig::quorum");
        };
        if masters.len() < 3 {
            return wrong(
                "a quorum needs at least 3 independent masters: of two, neither may fail",
            );
        }
        if (1..masters.len()).any(|at| masters[..at].contains(&masters[at])) {
            return wrong("a master is named twice and would vote twice");
        }
        Ok(masters)
    }

    /// The configuration for one of several servers.
    pub(crate) fn for_node(&self, endpoint: Endpoint) -> Self {
        let servers = Servers::Standalone(endpoint);
        Self {
            servers,
            ..self.clone()
        }
    }

    /// The engine of a backend with this name.
    pub(crate) fn engine(&self, backend: &'static str) -> Engine {
        let engine = self.engine.clone();
        engine.unwrap_or_else(|| Engine::of_this_process(backend))
    }

    /// Whether connections use TLS.
    pub(crate) fn speaks_tls(&self) -> bool {
        let address = self.client_address.as_ref();
        self.tls.is_some() || matches!(address, Some(ConnectionAddr::TcpTls { .. }))
    }
}

impl Endpoint {
    pub(crate) fn tcp(host: impl Into<String>, port: u16) -> Self {
        let host = host.into();
        Self::Tcp { host, port }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

fn endpoints<H: Into<String>>(hosts: impl IntoIterator<Item = (H, u16)>) -> Vec<Endpoint> {
    let hosts = hosts.into_iter();
    hosts
        .map(|(host, port)| Endpoint::tcp(host, port))
        .collect()
}
