use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::{Engine, TimeBudget, before};
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, Fencing, HealthCheck, Lease,
    LockGuard, LockLifetime, Result, Ticket, Waiting,
};
use tokio::net::lookup_host;
use tokio::time::Instant;

use crate::acquire::{EtcdAttempt, EtcdAttemptError, mark_failed, replied};
use crate::admin::Admin;
use crate::config::EtcdConfig;
use crate::error::EtcdFailure;
use crate::health;
use crate::lease::{EtcdLease, KnownKey};
use crate::server_lease::ServerLease;
use crate::store::EtcdStore;

/// Locks in an etcd cluster.
///
/// A lock is the keys below `PREFIX/NAME/`, one per contender, attached to a lease of etcd. The contender
/// with the oldest key holds the lock, and each other one watches the key before its own. Make one value
/// per process, and share it: its locks of one ttl are renewed together.
///
/// # Examples
///
/// ```no_run
/// use polylock_core::prelude::*;
/// use polylock_etcd::{Etcd, EtcdConfig};
///
/// # async fn example() -> polylock_core::Result<()> {
/// let config = EtcdConfig::new([("etcd1", 2379), ("etcd2", 2379), ("etcd3", 2379)]);
/// let locks = Etcd::connect(config).await?;
/// let guard = locks.lock("orders/42").await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Etcd {
    store: Arc<EtcdStore>,
    admin: Admin,
}

/// Name of the backend.
pub(crate) const NAME: &str = "etcd";

/// Servers with default settings grant no shorter lease.
pub(crate) const MIN_TTL: Duration = Duration::from_secs(2);

impl Etcd {
    /// Asks the cluster for its state, so that a wrong configuration fails here.
    ///
    /// # Errors
    ///
    /// - [`Unavailable`](polylock_core::ErrorKind::Unavailable) if no server answers; the message names the
    ///   servers, and those whose names do not resolve, which are looked up for 1 s at most.
    /// - [`Denied`](polylock_core::ErrorKind::Denied) if the credentials are refused.
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if there are no servers, a TLS file
    ///   cannot be read, or the cluster fails the start-up checks and the configuration is strict.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left.
    pub async fn connect(config: EtcdConfig) -> Result<Self> {
        let store = open(config)?;
        first_reply(&store, health::check(&store)).await?;
        let admin = Admin(Arc::clone(&store));
        Ok(Self { store, admin })
    }

    async fn adopt(&self, request: &AcquireRequest, ticket: &Ticket) -> Result<LockGuard> {
        let (engine, id) = (&self.store.engine, self.store.engine.lease_id());
        let lease = EtcdLease::new(&self.store, request, id, None);
        let armed: Arc<dyn Lease> = Arc::<EtcdLease>::clone(&lease);
        let pending = engine.pending(request.key(), armed, request.ttl());
        let ask = || async {
            let adopted = lease.adopt(ticket.lease_id()).await;
            adopted.map_err(Error::from)
        };
        pending.adopt(request, ticket, ask).await
    }
}

fn open(config: EtcdConfig) -> Result<Arc<EtcdStore>> {
    if config.hosts.is_empty() {
        let error = Error::config("the configuration names no servers");
        return Err(error.with_backend(NAME));
    }
    let engine = config.engine.clone();
    let engine = engine.unwrap_or_else(|| Engine::of_this_process(NAME));
    Ok(EtcdStore::new(config, engine))
}

/// Checks the cluster of a configuration.
pub(crate) async fn check_health(config: EtcdConfig) -> Result<Vec<HealthCheck>> {
    let store = open(config)?;
    first_reply(&store, health::check_health(&store)).await
}

/// Bounds the first requests to a cluster.
async fn first_reply<T>(
    store: &EtcdStore,
    request: impl Future<Output = Result<T, EtcdFailure>>,
) -> Result<T> {
    let timeout = store.config.connect_timeout;
    let answer = before(Instant::now() + timeout, request).await;
    let failure = match answer.unwrap_or(Err(EtcdFailure::Silent(timeout))) {
        Ok(answer) => return Ok(answer),
        Err(failure) => failure,
    };
    let error = match failure.is_out_of_reach() {
        true => no_answer(&store.config.hosts, failure).await,
        false => Error::from(failure),
    };
    Err(error.with_backend(NAME))
}

/// The error of a cluster that does not answer: names its servers, and those whose names do not resolve,
/// which the client of etcd does not report.
async fn no_answer(hosts: &[(String, u16)], failure: EtcdFailure) -> Error {
    let found = hosts.iter().map(|(host, port)| async move {
        let found = lookup_host((host.as_str(), *port));
        let found = before(Instant::now() + LOOKUP_TIMEOUT, found).await;
        matches!(found, Some(Err(_))).then_some(host)
    });
    let unknown: Vec<_> = join_all(found).await.into_iter().flatten().collect();
    let mut why: Vec<_> = unknown
        .iter()
        .map(|host| format!("the name {host} does not resolve"))
        .collect();
    if unknown.len() < hosts.len() {
        why.push(failure.to_string());
    }
    let servers = hosts.iter().map(|(host, port)| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    });
    let servers: Vec<_> = servers.collect();
    let message = format!("no answer from {}: {}", servers.join(", "), why.join("; "));
    Error::new(ErrorKind::Unavailable, message).with_source(failure.with_known_outcome())
}

/// How long the names of servers that do not answer are looked up, for the error.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Etcd {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::minimal(NAME);
        capabilities.admin = true;
        capabilities.bound = LockLifetime::Lease;
        capabilities.downgrade = true;
        capabilities.fair = true;
        capabilities.fencing = Fencing::Strong;
        capabilities.min_ttl = MIN_TTL;
        capabilities.permits = true;
        capabilities.shared = true;
        capabilities.tickets = true;
        capabilities.waiting = Waiting::Push;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        if let Some(ticket) = request.ticket() {
            return self.adopt(request, ticket).await;
        }
        let (store, request) = (Arc::clone(&self.store), request.clone());
        let key = request.key().clone();
        let acquired = self
            .store
            .engine
            .run(async move { acquire(&store, &request).await });
        acquired
            .await
            .map_err(|e| e.with_backend(NAME).with_key(&key))
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(&self.admin)
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.store.engine.drain(within).await
    }
}

const SILENT: &str =
    "etcd did not answer in time: too few of its servers are up, or none is within reach";

async fn acquire(store: &Arc<EtcdStore>, request: &AcquireRequest) -> Result<LockGuard> {
    let budget = TimeBudget::new(request, store.config.timeout, SILENT);
    loop {
        if let Some(guard) = attempt(store, request, &budget).await? {
            return Ok(guard);
        }
        if budget.is_spent() {
            return Err(budget.timed_out());
        }
    }
}

/// The lease of etcd for an attempt. Without a key it holds no lock, so the outcome is known without a reply.
async fn server_lease(
    store: &EtcdStore,
    request: &AcquireRequest,
    budget: &TimeBudget,
) -> Result<Arc<ServerLease>> {
    let until = budget.step();
    loop {
        match replied(request, budget, until, store.lease_for(request)).await {
            Some(Ok(lease)) => return Ok(lease),
            Some(Err(failure)) => {
                mark_failed(request, budget, &failure);
                let paused = store.connection.pause(until, failure).await;
                paused.map_err(EtcdFailure::with_known_outcome)?;
            }
            None => return Err(budget.unserved(SILENT)),
        }
    }
}

/// One attempt with an id of its own; `None` if its key ended meanwhile.
async fn attempt(
    store: &Arc<EtcdStore>,
    request: &AcquireRequest,
    budget: &TimeBudget,
) -> Result<Option<LockGuard>> {
    let server_lease = server_lease(store, request, budget).await?;
    let lease = EtcdLease::new(store, request, store.engine.lease_id(), Some(server_lease));
    let armed: Arc<dyn Lease> = Arc::<EtcdLease>::clone(&lease);
    let pending = store.engine.pending(request.key(), armed, request.ttl());
    let attempt = EtcdAttempt {
        store,
        request,
        budget,
        lease: &lease,
    };
    match attempt.run().await {
        Ok(grant) => pending.granted(request, grant).map(Some),
        Err(EtcdAttemptError::Gone) => {
            // The lease of etcd has ended, or another client deletes keys.
            if let Some(lease) = lease.server_lease() {
                lease.retire();
            }
            if matches!(lease.key(), KnownKey::Never) {
                pending.disarm();
            }
            Ok(None)
        }
        Err(EtcdAttemptError::Refused) => {
            // A key that is left for the background cleanup blocks other contenders until then.
            before(budget.undo(), pending.undo()).await;
            Err(budget.contended())
        }
        Err(EtcdAttemptError::Failed(failure)) => {
            let error = Error::from(failure);
            Err(match lease.key() {
                KnownKey::Never | KnownKey::Gone => error,
                // An earlier request may have created a key, which is deleted in the background.
                _ => error.with_unknown_outcome(),
            })
        }
        Err(EtcdAttemptError::Late) => Err(budget.timed_out()),
    }
}
