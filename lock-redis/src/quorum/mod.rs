//! Locks that a majority of independent masters grants.

mod acquire;
mod admin;
mod clock;
mod health;
mod lease;
mod node;
mod record;
mod rejoin;
mod renew;
#[cfg(test)]
mod tests;
mod token;
mod votes;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use polylock_core::admin::LockAdmin;
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, Fencing, LockGuard, Result,
    Waiting,
};
use tokio::time::Instant;

use self::clock::ServerClock;
use self::node::{Quorum, QuorumNode};
use self::votes::{Decision, Votes};
use crate::checks::check;
use crate::config::RedisConfig;
use crate::error::{RedisCause, RedisFailure, Refusal};
use crate::held_leases::HeldRedisLeases;
use crate::lock::EventForwarder;
use crate::server::{Server, millis};
use crate::topology::{self, Call, Topology};

pub(crate) use self::health::check_health;
pub(crate) use self::votes::is_too_few;

/// Locks on several independent Redis masters. The holder has the votes of a majority.
///
/// With `n` masters, three or more, `n/2 + 1` must reply. The lock survives the loss of the other
/// masters and of their data. Each master stores a lock as [`Redis`](crate::Redis) does, so that locks
/// of other Redlock clients and of this one exclude each other. Permits are refused, because majorities
/// that overlap in one master cannot limit the number of holders.
///
/// # Guarantees
///
/// Two guards do not hold a lock at the same time under two conditions. The clocks of a majority run at
/// the same rate within the margin of the lease, and do not jump. No master votes after it has forgotten
/// a holder: see [`with_rejoin_delay`](RedisConfig::with_rejoin_delay). A fencing token is larger than
/// that of every earlier holder as long as a majority remembers it, or the clock of one of the voters is
/// not behind it. If the clocks of all voters are more than 100 ms behind the one of the client, the voters
/// may have forgotten a larger token. The client then waits for the other nodes, up to 500 ms after its
/// request (at most a quarter of the ttl and half of the wait that is left), and continues the tokens of
/// those that reply. It always continues a token more than 100 ms ahead of its clock that a node reports
/// before the others have voted.
///
/// # Examples
///
/// ```no_run
/// use polylock_core::prelude::*;
/// use polylock_redis::{RedisConfig, Redlock};
///
/// # async fn example() -> polylock_core::Result<()> {
/// let masters = [("a.internal", 6379), ("b.internal", 6379), ("c.internal", 6379)];
/// let locks = Redlock::connect(RedisConfig::quorum(masters)).await?;
/// let guard = locks.lock("orders/42").await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Redlock {
    client: QuorumClient,
}

/// What the locks of one quorum are acquired with.
#[derive(Debug)]
struct QuorumClient(Arc<Quorum>);

/// Name of the backend.
const NAME: &str = "redlock";

impl Redlock {
    /// Connects to a majority of the masters, and to the others once they are reachable.
    ///
    /// # Errors
    ///
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the configuration is not made by
    ///   [`RedisConfig::quorum`], names fewer than three masters or one of them twice, or asks for
    ///   replica acks, which a quorum does not support. With strict checks, also if a master that
    ///   replies is not fit for locks; without, if one that replies in time is a node of a cluster or a
    ///   Sentinel.
    /// - [`Unavailable`](polylock_core::ErrorKind::Unavailable) if no majority can be reached.
    /// - [`Denied`](polylock_core::ErrorKind::Denied) if too many masters refuse the credentials for a
    ///   majority.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves only connections that close.
    pub async fn connect(config: RedisConfig) -> Result<Self> {
        let quorum = open(&config).await.map_err(|e| e.with_backend(NAME))?;
        let reached = reach(&quorum, &config).await;
        reached.map_err(|error| error.with_backend(NAME))?;
        // Those that have not answered yet as well: their votes may be needed later.
        for node in &quorum.nodes {
            if !node.rejoins_in().is_zero() {
                node.watch();
            }
        }
        let client = QuorumClient(Arc::new(quorum));
        Ok(Self { client })
    }
}

/// Prepares the connections to the masters, and opens none.
async fn open(config: &RedisConfig) -> Result<Quorum> {
    let masters = config.masters()?;
    if config.replica_acks > 0 {
        let message =
            "the masters of a quorum have no replicas that count: leave min-replica-acks out";
        return Err(Error::config(message));
    }
    let engine = config.engine(NAME);
    let held_leases = Arc::new(HeldRedisLeases::on(masters.len(), &engine));
    let mut nodes = Vec::with_capacity(masters.len());
    for (number, master) in masters.iter().enumerate() {
        let mut config = config.for_node(master.clone());
        config.timeout = config.node_timeout;
        let events = Arc::new(EventForwarder {
            node: number,
            notifications: Arc::default(),
            held_leases: Arc::clone(&held_leases),
        });
        let topology = topology::new(&config, events, &engine).await?;
        nodes.push(Arc::new(QuorumNode {
            number,
            server: Server::new(topology, &config).of_quorum(),
            name: master.to_string(),
            engine: engine.clone(),
            retention: millis(config.retention),
            clock: ServerClock::default(),
            rejoin_delay: config.rejoin_delay,
            run: Mutex::default(),
            watcher: Mutex::default(),
        }));
    }
    Ok(Quorum {
        nodes,
        engine,
        held_leases,
    })
}

/// Waits until a majority replies; with strict checks, until every node has replied or failed.
async fn reach(quorum: &Quorum, config: &RedisConfig) -> Result<()> {
    let mut answers = quorum.ask(|node| async move { look_at(&node, config).await });
    let mut votes = Votes::new(quorum.len());
    let mut failures = Vec::new();
    while let Some((number, answer)) = answers.next().await {
        votes.add(answer.as_ref().ok().map(|()| true));
        match answer {
            Ok(()) => {}
            Err(failure) => match misconfigured(&quorum.nodes[number], &failure) {
                Some(error) => return Err(error),
                None => failures.push(failure),
            },
        }
        if votes.election() == Decision::Yes && !config.strict {
            return Ok(());
        }
    }
    match votes.election() {
        Decision::Yes => Ok(()),
        _ => Err(quorum.unavailable(&failures, &[])),
    }
}

/// The error of a node that cannot be a master of a quorum, or that strict checks refuse.
fn misconfigured(node: &QuorumNode, failure: &RedisFailure) -> Option<Error> {
    match &failure.cause {
        RedisCause::Config(_) => Some(Error::config(format!("{}: {}", node.name, failure.cause))),
        RedisCause::Stranger {
            kind: ErrorKind::InvalidConfig,
            ..
        } => Some(failure.clone().into()),
        _ => None,
    }
}

/// Retries for as long as opening a connection may take: a node that was slow once is not down.
async fn look_at(node: &QuorumNode, config: &RedisConfig) -> Result<(), RedisFailure> {
    let topology = &*node.server.topology;
    let_in(topology, config).await?;
    if !node.rejoin_delay.is_zero()
        && let Err(failure) = node.compare_ages().await
    {
        let server = &node.name;
        tracing::debug!(server, ?failure, "the age of a node is not known");
    }
    match check(topology, config).await {
        // A node that does not reply in time is not checked further.
        Err(failure) if failure.is_retryable() => Ok(()),
        checked => checked,
    }
}

/// Waits until a node replies to commands. It accepts connections while it loads its data, and over
/// RESP2 without a password.
async fn let_in(topology: &dyn Topology, config: &RedisConfig) -> Result<(), RedisFailure> {
    let until = Instant::now() + config.connect_timeout;
    let ping = redis::cmd("PING");
    loop {
        match topology.call(Call::plain(b"", &ping)).await {
            // The user is logged in, and may not run the command.
            Err(failure) if failure.refusal() == Some(Refusal::NoPerm) => return Ok(()),
            Err(failure) if failure.is_retryable() && Instant::now() < until => {
                tokio::time::sleep(CONNECT_BACKOFF).await;
            }
            Err(failure) => return Err(failure),
            Ok(_) => return Ok(()),
        }
    }
}

/// Time between two attempts to connect.
const CONNECT_BACKOFF: Duration = Duration::from_millis(20);

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Redlock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::minimal(NAME);
        capabilities.admin = true;
        capabilities.downgrade = true;
        capabilities.fencing = Fencing::BestEffort;
        capabilities.shared = true;
        capabilities.waiting = Waiting::Poll;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let acquired = self.client.acquire(request).await;
        acquired.map_err(|e| e.with_backend(NAME).with_key(request.key()))
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(&self.client)
    }

    async fn shutdown(&self, within: Duration) -> bool {
        let QuorumClient(quorum) = &self.client;
        // Tells the nodes the ages that this client has observed, for later clients.
        let ages = tokio::time::timeout(within, quorum.tell_ages());
        let (drained, _) = tokio::join!(quorum.engine.drain(within), ages);
        drained
    }
}
