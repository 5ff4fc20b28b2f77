use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polylock_core::ErrorKind;
use polylock_core::engine::Engine;
use redis::ServerError;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Id;
use tokio::time::Instant;

use super::connection_events::ConnectionEvents;
use super::connector::Connector;
use crate::config::RedisConfig;
use crate::error::{RedisFailure, Refusal};

/// The channel for locks that an administrator breaks; the script uses the same name.
const BROKEN: &str = "polylock:broken";

/// What all connections of a client have in common.
#[derive(Debug)]
pub(super) struct ConnectionContext {
    pub(super) events: Arc<dyn ConnectionEvents>,
    pub(super) engine: Engine,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) push: bool,
    /// The same on every server, so that a queue that moves keeps its waiters.
    pub(super) channel: Arc<str>,
    /// The runtime whose connections subscribe to the channel, whatever server is used next: the first one
    /// that requested it.
    pub(super) subscriber: OnceLock<Id>,
    has_warned: AtomicBool,
    #[cfg(feature = "tls")]
    pub(super) certificates: Option<redis::TlsCertificates>,
}

/// Whether a connection is subscribed to the channels of the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SubscriptionState {
    Denied,
    NotRequested,
    Subscribed,
}

impl ConnectionContext {
    pub(super) fn new(
        config: &RedisConfig,
        events: Arc<dyn ConnectionEvents>,
        engine: &Engine,
    ) -> Self {
        Self {
            events,
            engine: engine.clone(),
            timeout: config.timeout,
            connect_timeout: config.connect_timeout,
            push: config.push,
            channel: format!("polylock:{}", engine.lease_id().to_hex()).into(),
            subscriber: OnceLock::new(),
            has_warned: AtomicBool::new(false),
            #[cfg(feature = "tls")]
            certificates: None,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// The deadline of a request that may have to connect first.
    pub(super) fn connect_deadline(&self) -> Instant {
        self.deadline() + self.connect_timeout
    }

    /// Backoff after a failed attempt to connect.
    pub(super) fn pause(&self) -> Duration {
        let (low, high) = (Duration::from_millis(20), Duration::from_millis(100));
        self.engine.jitter(low, high)
    }

    /// Subscribes a connection to the channels of this client; warns if that is impossible.
    pub(super) async fn subscribe(
        &self,
        connector: &Connector,
        connection: &mut MultiplexedConnection,
        pushes: bool,
    ) -> Result<SubscriptionState, RedisFailure> {
        let server = &connector.server;
        if !pushes {
            self.warn_of_polling(server, "RESP2 cannot push");
            return Ok(SubscriptionState::Denied);
        }
        // Scripts publish with the rights of their user, and cannot detect a missing right.
        let attempt = async {
            connection.subscribe(&[&*self.channel, BROKEN]).await?;
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(&*self.channel).arg("");
            publish.query_async::<()>(connection).await
        };
        let Err(error) = attempt.await else {
            return Ok(SubscriptionState::Subscribed);
        };
        let reply = match ServerError::try_from(error) {
            Ok(reply) => reply,
            Err(error) => return Err(RedisFailure::unconnected(server, error)),
        };
        let why = match Refusal::of(&reply) {
            // A server that is busy, for example.
            refusal if refusal.kind() == ErrorKind::Unavailable => {
                return Err(RedisFailure::refused(server, reply).cause.into());
            }
            Refusal::NoPerm => "the ACL denies SUBSCRIBE, PUBLISH or the channel",
            _ => "the server refuses SUBSCRIBE or PUBLISH",
        };
        self.warn_of_polling(server, why);
        Ok(SubscriptionState::Denied)
    }

    fn warn_of_polling(&self, server: &str, why: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(server, why, "waiters are not notified and poll");
        }
    }
}
