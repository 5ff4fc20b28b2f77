use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::Engine;
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, Fencing, HealthCheck, LockGuard, Result,
    Waiting,
};

use crate::checks::look;
use crate::config::RedisConfig;
use crate::contention::ContentionHint;
use crate::held_leases::HeldRedisLeases;
use crate::notifications::GrantNotifications;
use crate::server::Server;
use crate::stranger;
use crate::topology::{self, ConnectionEvents, NoEvents};

/// Locks on one Redis server, on the master that Sentinel names, or in a cluster.
///
/// Exclusive locks are strings, `<id>|<label>` under the key of the lock, so that they exclude
/// clients of other libraries that use `SET NX PX`. Waiters queue on the server, and a release
/// grants the lock to the first of them and notifies it.
///
/// # Examples
///
/// ```no_run
/// use polylock_core::prelude::*;
/// use polylock_redis::{Redis, RedisConfig};
///
/// # async fn example() -> polylock_core::Result<()> {
/// let locks = Redis::connect(RedisConfig::new("127.0.0.1", 6379)).await?;
/// let guard = locks.lock("orders/42").await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Redis {
    pub(crate) client: Arc<RedisClient>,
}

/// State shared by all locks on one server.
#[derive(Debug)]
pub(crate) struct RedisClient {
    pub(crate) engine: Engine,
    pub(crate) server: Arc<Server>,
    pub(crate) held_leases: Arc<HeldRedisLeases>,
    pub(crate) contention: ContentionHint,
    pub(crate) notifications: Arc<GrantNotifications>,
    /// Max time of one request.
    pub(crate) longest: Duration,
}

/// Name of the backend.
pub(crate) const NAME: &str = "redis";

impl Redis {
    /// Connects to the server.
    ///
    /// # Errors
    ///
    /// - [`Unavailable`](polylock_core::ErrorKind::Unavailable) if it cannot be reached.
    /// - [`Denied`](polylock_core::ErrorKind::Denied) if it refuses the credentials.
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is a Sentinel or a node of a
    ///   cluster and the configuration says otherwise, or if it is not fit for locks and the configuration is
    ///   strict.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves only a connection that closes.
    pub async fn connect(config: RedisConfig) -> Result<Self> {
        let engine = config.engine(NAME);
        let notifications = Arc::<GrantNotifications>::default();
        let held_leases = Arc::new(HeldRedisLeases::on(1, &engine));
        let events = Arc::new(EventForwarder {
            node: 0,
            notifications: Arc::clone(&notifications),
            held_leases: Arc::clone(&held_leases),
        });
        let topology = match topology::connect(&config, events, &engine).await {
            Ok(topology) => topology,
            Err(failure) => {
                let failure = stranger::explained(failure, config.speaks_tls()).await;
                return Err(Error::from(failure).with_backend(NAME));
            }
        };
        let requests = 1 + u32::from(topology.confirms());
        let longest = match config.replica_acks {
            0 => requests * config.timeout,
            // A waiter that is granted the lock sends one more request, for the replicas.
            _ => 2 * requests * config.timeout + config.replica_ack_timeout,
        };
        Ok(Self {
            client: Arc::new(RedisClient {
                server: Arc::new(Server::new(topology, &config)),
                engine,
                held_leases,
                contention: ContentionHint::default(),
                notifications,
                longest,
            }),
        })
    }
}

/// Checks the servers of a configuration, and closes the connections to them.
pub(crate) async fn check_health(config: RedisConfig) -> Result<Vec<HealthCheck>> {
    let engine = config.engine(NAME);
    let seen = async {
        let topology = topology::new(&config, Arc::new(NoEvents), &engine).await?;
        topology.open().await?;
        look(&*topology, &config).await
    };
    match seen.await {
        Ok((_, found)) => Ok(found),
        Err(failure) => Err(Error::from(failure).with_backend(NAME)),
    }
}

/// Forwards events of the connections to one node to the locks.
#[derive(Debug)]
pub(crate) struct EventForwarder {
    /// 0, unless it is one of a quorum.
    pub(crate) node: usize,
    pub(crate) notifications: Arc<GrantNotifications>,
    pub(crate) held_leases: Arc<HeldRedisLeases>,
}

impl ConnectionEvents for EventForwarder {
    fn on_message(&self, payload: &[u8]) {
        if !self.held_leases.broken(payload, self.node) {
            self.notifications.deliver(payload);
        }
    }

    fn on_disconnect(&self) {
        self.notifications.interrupt();
    }

    fn on_gap(&self) {
        self.held_leases.check_after_gap(self.node);
    }

    fn on_failover(&self) {
        self.held_leases.check_after_failover(self.node);
        self.notifications.interrupt();
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Redis {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::minimal(NAME);
        capabilities.admin = true;
        capabilities.clock_tokens = true;
        capabilities.downgrade = true;
        capabilities.fair = true;
        capabilities.fencing = Fencing::BestEffort;
        capabilities.min_ttl = AcquireRequest::MIN_TTL;
        capabilities.permits = true;
        capabilities.shared = true;
        capabilities.tickets = true;
        capabilities.waiting = Waiting::Push;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let acquired = match request.ticket() {
            Some(ticket) => self.client.adopt(request, ticket).await,
            None => self.client.acquire(request).await,
        };
        acquired.map_err(|e| e.with_backend(NAME).with_key(request.key()))
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(&*self.client)
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.client.engine.drain(within).await
    }
}
