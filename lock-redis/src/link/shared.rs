use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::engine::Engine;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::Ears;
use super::runtimes::Runtimes;
use crate::config::RedisConfig;

/// Where every client hears of locks that an administrator breaks; the script knows it as well.
pub(super) const BROKEN: &str = "polylock:broken";

/// What all connections of a link have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ears: Arc<dyn Ears>,
    pub(super) engine: Engine,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) push: bool,
    /// What the channels of this link begin with.
    channel: String,
    /// Runtimes whose channel is wanted, on whatever server is used for them next.
    listening: Runtimes,
    has_warned: AtomicBool,
}

impl Shared {
    pub(super) fn new(config: &RedisConfig, ears: Arc<dyn Ears>, engine: &Engine) -> Self {
        Self {
            ears,
            engine: engine.clone(),
            timeout: config.timeout,
            connect_timeout: config.connect_timeout,
            push: config.push,
            channel: format!("polylock:{}", engine.lease_id().to_hex()),
            listening: Runtimes::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// How long after a failed attempt to connect there is no other one.
    pub(super) fn pause(&self) -> Duration {
        let (low, high) = (Duration::from_millis(20), Duration::from_millis(100));
        self.engine.jitter(low, high)
    }

    pub(super) fn warn_of_silence(&self, server: &str, why: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server,
                why,
                "waiters are not notified and ask again and again"
            );
        }
    }

    /// The channel of the whole link.
    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// The channel of one runtime, the same on every server, so that a queue that moves keeps its
    /// waiters.
    pub(super) fn channel_of(&self, runtime: Id) -> Arc<str> {
        format!("{}:{runtime}", self.channel).into()
    }

    pub(super) fn listens(&self, runtime: Id) -> bool {
        self.listening.contains(runtime)
    }

    pub(super) fn listen(&self, runtime: &Handle) {
        self.listening.add(runtime);
    }
}
