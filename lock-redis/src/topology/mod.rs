//! The connections: they run scripts on the server of a key, and receive its messages.

mod call;
mod cluster;
mod connection;
mod connection_events;
mod connector;
mod context;
mod contract;
mod driver;
mod known_sentinels;
mod map;
mod node;
mod on_demand;
mod pubsub;
mod request;
mod sentinel;
mod sentinel_events;
mod sentinel_reports;
mod slots;
mod standalone;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(feature = "tls")]
mod tls;
mod unanswered;
mod wait_batch;

use std::sync::Arc;

use polylock_core::engine::Engine;

use crate::checks;
use crate::config::{RedisConfig, Servers};
use crate::error::{RedisCause, RedisFailure};

use self::cluster::Cluster;
use self::context::ConnectionContext;
use self::sentinel::Sentinel;
use self::standalone::Standalone;

pub(crate) use self::call::{Call, CallKind, Done, ReplicaWait};
pub(crate) use self::connection_events::{ConnectionEvents, NoEvents};
pub(crate) use self::contract::{MAX_AGE, Topology};
pub(crate) use self::node::RedisNode;
pub(crate) use self::request::whole_millis;
pub(crate) use self::unanswered::Unanswered;
pub(crate) use self::wait_batch::WaitBatch;

/// Connects to the servers of a configuration and checks them, except those of a quorum.
pub(crate) async fn connect(
    config: &RedisConfig,
    events: Arc<dyn ConnectionEvents>,
    engine: &Engine,
) -> Result<Arc<dyn Topology>, RedisFailure> {
    let topology = new(config, events, engine).await?;
    topology.open().await?;
    checks::check(&*topology, config).await?;
    Ok(topology)
}

/// Prepares the servers of a configuration, to which the first call connects. Reads the TLS files.
///
/// # Cancel safety
///
/// Sends nothing.
pub(crate) async fn new(
    config: &RedisConfig,
    events: Arc<dyn ConnectionEvents>,
    engine: &Engine,
) -> Result<Arc<dyn Topology>, RedisFailure> {
    let shared = Arc::new(context(config, events, engine).await?);
    Ok(match &config.servers {
        Servers::Standalone(endpoint) => Arc::new(Standalone::new(config, endpoint, shared)?),
        Servers::Sentinel { sentinels, master } => {
            Arc::new(Sentinel::new(config, sentinels, master, shared))
        }
        Servers::Cluster(seeds) => Arc::new(Cluster::new(config, seeds, shared)),
        Servers::Quorum(_) => {
            let message = "a quorum has a way to each of its nodes";
            return Err(RedisCause::Config(message.to_owned()).into());
        }
    })
}

#[cfg(feature = "tls")]
async fn context(
    config: &RedisConfig,
    events: Arc<dyn ConnectionEvents>,
    engine: &Engine,
) -> Result<ConnectionContext, RedisFailure> {
    let mut context = ConnectionContext::new(config, events, engine);
    if let Some(files) = &config.tls {
        context.certificates = Some(tls::certificates(files, config.connect_timeout).await?);
    }
    Ok(context)
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "it reads files with the feature")]
async fn context(
    config: &RedisConfig,
    events: Arc<dyn ConnectionEvents>,
    engine: &Engine,
) -> Result<ConnectionContext, RedisFailure> {
    if config.tls.is_some() {
        let message = "this program is built without the feature \"tls\" of polylock \
                       (of polylock-redis, if used alone)";
        return Err(RedisCause::Config(message.to_owned()).into());
    }
    Ok(ConnectionContext::new(config, events, engine))
}
