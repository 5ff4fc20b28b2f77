use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::{Engine, TimeBudget, before};
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, Fencing, HealthCheck, Lease,
    LockGuard, LockKey, LockLifetime, Result, Waiting,
};
use tokio::time::Instant;

use crate::acquire::{ZkAttempt, ZkAttemptError};
use crate::config::ZooKeeperConfig;
use crate::diagnose_connect::address;
use crate::health;
use crate::lease::ZooKeeperLease;
use crate::recipe::directory::Directory;
use crate::session::ZkSessions;
use crate::session::connect::visit;

/// Locks in a ZooKeeper ensemble.
///
/// A lock is a directory in which every contender has an ephemeral sequential node. The contender with the
/// first node holds the lock, and each other one watches the node before its own. All locks of one value
/// share one session: make one value per process, and share it.
///
/// # Examples
///
/// ```no_run
/// use polylock_core::prelude::*;
/// use polylock_zk::{ZooKeeper, ZooKeeperConfig};
///
/// # async fn example() -> polylock_core::Result<()> {
/// let config = ZooKeeperConfig::new([("zk1", 2181), ("zk2", 2181), ("zk3", 2181)]);
/// let locks = ZooKeeper::connect(config).await?;
/// let guard = locks.lock("orders/42").await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ZooKeeper {
    pub(crate) client: ZkClient,
}

#[derive(Clone, Debug)]
pub(crate) struct ZkClient {
    pub(crate) engine: Engine,
    pub(crate) sessions: Arc<ZkSessions>,
}

/// Name of the backend.
pub(crate) const NAME: &str = "zookeeper";

impl ZooKeeper {
    /// Opens a session.
    ///
    /// # Errors
    ///
    /// - [`Unavailable`](polylock_core::ErrorKind::Unavailable) if no server opens one.
    /// - [`Denied`](polylock_core::ErrorKind::Denied) if the credentials are refused, or do not suffice to
    ///   create the root.
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the ensemble fails the start-up
    ///   checks and the configuration is strict.
    ///
    /// # Cancel safety
    ///
    /// Only a session that closes is left, and perhaps the root.
    pub async fn connect(config: ZooKeeperConfig) -> Result<Self> {
        let engine = engine(&config);
        let sessions = ZkSessions::open(config, &engine).await;
        let sessions = sessions.map_err(|failure| Error::from(failure).with_backend(NAME))?;
        Ok(Self {
            client: ZkClient { engine, sessions },
        })
    }
}

fn engine(config: &ZooKeeperConfig) -> Engine {
    let engine = config.engine.clone();
    engine.unwrap_or_else(|| Engine::of_this_process(NAME))
}

/// Checks the ensemble of a configuration in a session of its own.
pub(crate) async fn check_health(config: &ZooKeeperConfig) -> Result<Vec<HealthCheck>> {
    let client = visit(config, &engine(config)).await;
    let client = client.map_err(|failure| Error::from(failure).with_backend(NAME))?;
    Ok(health::check_health(&client, config))
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for ZooKeeper {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::minimal(NAME);
        capabilities.admin = true;
        capabilities.bound = LockLifetime::Session;
        capabilities.downgrade = true;
        capabilities.fair = true;
        capabilities.fencing = Fencing::Strong;
        capabilities.permits = true;
        capabilities.shared = true;
        capabilities.waiting = Waiting::Push;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let (client, request) = (self.client.clone(), request.clone());
        let key = request.key().clone();
        let acquired = self.client.engine.run(async move {
            match client.acquire(&request).await {
                Err(error) if error.kind() == ErrorKind::Foreign => {
                    Err(client.explained(request.key(), error).await)
                }
                acquired => acquired,
            }
        });
        acquired
            .await
            .map_err(|e| e.with_backend(NAME).with_key(&key))
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(&self.client)
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.client.engine.drain(within).await
    }
}

const SILENT: &str =
    "ZooKeeper did not answer in time: too few of its servers are up, or none is within reach";
const UNSERVED: &str = "the session with ZooKeeper ended, or the node of this contender was deleted, before it \
                        was seen who holds the lock";

impl ZkClient {
    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        let budget = TimeBudget::new(request, self.sessions.config.timeout, SILENT);
        loop {
            if let Some(guard) = self.attempt(request, &budget).await? {
                return Ok(guard);
            }
            if budget.is_spent() {
                return Err(budget.unserved(UNSERVED));
            }
        }
    }

    /// One attempt with an id of its own; `None` if its session or its node ended meanwhile.
    async fn attempt(
        &self,
        request: &AcquireRequest,
        budget: &TimeBudget,
    ) -> Result<Option<LockGuard>> {
        let session = self.sessions.get(budget.step()).await?;
        let (id, config) = (self.engine.lease_id(), &self.sessions.config);
        let lease = ZooKeeperLease::new(session, config, request, id);
        let lease = Arc::new(lease);
        let armed: Arc<dyn Lease> = Arc::<ZooKeeperLease>::clone(&lease);
        let pending = self.engine.pending(request.key(), armed, request.ttl());
        let attempt = ZkAttempt {
            client: self,
            request,
            budget,
            lease: &lease,
            has_waited: AtomicBool::new(false),
        };
        match attempt.run().await {
            Ok(grant) => pending.granted(request, grant).map(Some),
            // The server may keep a session that has ended for this client, and the node with it. The node is
            // deleted in the background, until it is certainly gone.
            Err(ZkAttemptError::Gone) => {
                if lease.session.is_over() {
                    // Nothing is known of the lock until the next session lists its contenders.
                    attempt.mark_unresponsive();
                }
                Ok(None)
            }
            Err(ZkAttemptError::Refused) => {
                // A node that is left for the background cleanup blocks other contenders until then.
                before(budget.undo(), pending.undo()).await;
                Err(budget.contended())
            }
            // A node that may exist is deleted in the background.
            Err(ZkAttemptError::Failed(failure)) => Err(failure.into()),
            Err(ZkAttemptError::Late) => Err(budget.timed_out()),
        }
    }

    /// Says what is in place of the directory of a key, and how to remove it.
    async fn explained(&self, key: &LockKey, error: Error) -> Error {
        let config = &self.sessions.config;
        let (directory, until) = (Directory::of(key), Instant::now() + config.timeout);
        let asked = async {
            let session = self.sessions.get(until).await.ok()?;
            session.client.check_stat(directory.path()).await.ok()?
        };
        let Some(Some(stat)) = before(until, asked).await else {
            return error;
        };
        let path = format!("{}{directory}", config.root.trim_end_matches('/'));
        let server = config.hosts.first();
        let server = server.map(|(host, port)| address(host, *port));
        let message = format!(
            "{path} is an ephemeral node with {} bytes of data, which session 0x{:x} has created, \
             and no directory of a lock; it is left as it is and goes with its session. If it is not needed, \
             remove it: zkCli.sh -server {} delete {path}",
            stat.data_length,
            stat.ephemeral_owner,
            server.unwrap_or_default()
        );
        Error::new(ErrorKind::Foreign, message)
    }
}
