//! The connections: they run scripts on the server of a key, and receive its messages.

mod cluster;
mod connection;
mod connector;
mod context;
mod contract;
mod known_sentinels;
mod map;
mod node;
mod on_demand;
mod pubsub;
mod request;
mod sentinel;
mod sentinel_events;
mod sentinel_reports;
mod sentinel_votes;
mod slots;
mod standalone;
#[cfg(test)]
pub(crate) mod tests;
mod tls;
mod unanswered;

use std::sync::Arc;

use polylock_core::engine::Engine;

use crate::checks;
use crate::config::{RedisConfig, Servers};
use crate::error::{Cause, Failure};

use self::cluster::Cluster;
use self::context::ConnectionContext;
use self::sentinel::Sentinel;
use self::standalone::Standalone;

pub(crate) use self::contract::{
    Call, Command, ConnectionEvents, Done, NoEvents, NodeReply, ReplicaWait, Topology,
};
#[cfg(test)]
pub(crate) use self::node::Node;
pub(crate) use self::request::whole_millis;
pub(crate) use self::unanswered::Unanswered;

/// Connects to the servers of a configuration and checks them, those of a quorum excepted.
pub(crate) async fn connect(
    config: &RedisConfig,
    events: Arc<dyn ConnectionEvents>,
    engine: &Engine,
) -> Result<Arc<dyn Topology>, Failure> {
    let topology = open(config, events, engine).await?;
    checks::check(&*topology, config).await?;
    Ok(topology)
}

/// The same for servers that are looked at and not used.
pub(crate) async fn open(
    config: &RedisConfig,
    events: Arc<dyn ConnectionEvents>,
    engine: &Engine,
) -> Result<Arc<dyn Topology>, Failure> {
    let shared = Arc::new(ConnectionContext::new(config, events, engine));
    let topology: Arc<dyn Topology> = match &config.servers {
        Servers::Standalone(endpoint) => {
            let topology = Standalone::new(config, endpoint, shared)?;
            topology.open().await?;
            Arc::new(topology)
        }
        Servers::Sentinel { sentinels, master } => {
            let topology = Sentinel::new(config, sentinels, master, shared)?;
            topology.open().await?;
            Arc::new(topology)
        }
        Servers::Cluster(seeds) => {
            let topology = Cluster::new(config, seeds, shared)?;
            topology.open().await?;
            Arc::new(topology)
        }
        Servers::Quorum(_) => {
            return Err(Cause::Config("a quorum has a topology for each node".to_owned()).into());
        }
    };
    Ok(topology)
}

/// One node of a quorum, which may be down: its first call connects.
pub(crate) fn connect_node(
    config: &RedisConfig,
    events: Arc<dyn ConnectionEvents>,
    engine: &Engine,
) -> Result<Arc<dyn Topology>, Failure> {
    let shared = Arc::new(ConnectionContext::new(config, events, engine));
    match &config.servers {
        Servers::Standalone(endpoint) => Ok(Arc::new(Standalone::new(config, endpoint, shared)?)),
        Servers::Cluster(_) | Servers::Quorum(_) | Servers::Sentinel { .. } => {
            Err(Cause::Config("a node of a quorum is a single server".to_owned()).into())
        }
    }
}
