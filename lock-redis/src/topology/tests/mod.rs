//! The links against real servers.

mod cluster;
mod sentinel;
mod standalone;
#[cfg(feature = "tls")]
mod tls;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use lock_testkit::servers::RedisServer;
use polylock_core::engine::Engine;
use polylock_core::{Error, LockUrl};
use tokio::time::{Instant, sleep};

use super::{Call, ConnectionEvents, Topology, connect};
use crate::config::RedisConfig;
use crate::error::{RedisCause, RedisFailure, Refusal};
use crate::script::Script;

/// The events of a topology.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(super) messages: Mutex<Vec<Vec<u8>>>,
    pub(super) deaf: AtomicUsize,
    pub(super) gaps: AtomicUsize,
    pub(super) moved: AtomicUsize,
}

impl ConnectionEvents for Told {
    fn on_message(&self, payload: &[u8]) {
        self.messages.lock().unwrap().push(payload.to_vec());
    }

    fn on_disconnect(&self) {
        self.deaf.fetch_add(1, Ordering::SeqCst);
    }

    fn on_gap(&self) {
        self.gaps.fetch_add(1, Ordering::SeqCst);
    }

    fn on_failover(&self) {
        self.moved.fetch_add(1, Ordering::SeqCst);
    }
}

impl Told {
    pub(super) fn has(&self, message: &[u8]) -> bool {
        let messages = self.messages.lock().unwrap();
        messages.iter().any(|one| one == message)
    }
}

/// Times that hold on a machine that is busy with other tests.
pub(crate) fn config(server: &RedisServer) -> RedisConfig {
    patient(RedisConfig::new("127.0.0.1", server.port()))
}

pub(super) fn patient(config: RedisConfig) -> RedisConfig {
    let long = Duration::from_secs(4);
    let config = config.with_timeout(long).expect("it is in range");
    config.with_connect_timeout(long).expect("it is in range")
}

pub(crate) async fn open(config: &RedisConfig) -> (Arc<dyn Topology>, Arc<Told>) {
    let told = Arc::new(Told::default());
    let (events, engine) = (Arc::clone(&told), Engine::of_this_process("redis"));
    let connected = connect(config, events, &engine).await;
    (connected.expect("it connects"), told)
}

/// The error of a connection that is refused.
pub(super) async fn refused(config: &RedisConfig) -> Error {
    let (told, engine) = (Arc::new(Told::default()), Engine::of_this_process("redis"));
    let refused = connect(config, told, &engine).await;
    refused.unwrap_err().into()
}

/// A request that a server refuses.
pub(super) fn refused_with(refusal: Refusal) -> RedisFailure {
    RedisCause::Refused {
        server: "a:1".into(),
        refusal,
        source: Arc::from(Box::from("refused")),
    }
    .into()
}

/// Waits until something is true.
pub(super) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    lock_testkit::locks::until(what, async || is_true()).await;
}

const INCREMENT: &str = "return redis.call('INCR', KEYS[1])";

static COUNT: Script = Script {
    name: "count",
    text: INCREMENT,
    hash: LazyLock::new(|| redis::Script::new(INCREMENT).get_hash().to_owned()),
};

pub(super) async fn count(topology: &dyn Topology, key: &str) -> Result<i64, RedisFailure> {
    let keys = [key.as_bytes()];
    let done = topology.call(Call::script(&COUNT, &keys, &[])).await?;
    Ok(redis::from_redis_value(done.value).expect("a number"))
}

/// Counts as soon as that succeeds.
pub(super) async fn count_in_time(topology: &dyn Topology, key: &str) -> i64 {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match count(topology, key).await {
            Ok(n) => return n,
            Err(failure) => assert!(Instant::now() < deadline, "{failure:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// The servers of a URL, which are given a few seconds.
pub(super) fn by_url(url: &str) -> RedisConfig {
    let url = LockUrl::parse(&format!("{url}?timeout=1s&connect-timeout=2s")).unwrap();
    RedisConfig::from_url(&url).unwrap()
}
