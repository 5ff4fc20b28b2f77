//! One Redis server keeps every promise.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{DistributedLock, LockKey};
use lock_redis::{Redis, RedisConfig};
use lock_testkit::harness::{Harness, Look};
use lock_testkit::servers::{RedisOptions, RedisServer, Reply};
use lock_testkit::taker::Taker;

lock_testkit::conformance!(harness = Place::new(), skip = [Duplicates, Faults]);

#[derive(Debug)]
struct Place {
    server: RedisServer,
}

impl Place {
    fn new() -> Self {
        let server = RedisServer::start(RedisOptions::default());
        Self { server }
    }
}

#[async_trait]
impl Harness for Place {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        let config = RedisConfig::new("127.0.0.1", self.server.port());
        Arc::new(Redis::connect(config).await.unwrap())
    }

    fn taker(&self) -> Option<Taker> {
        let url = format!("{}?namespace=", self.server.url());
        Some(Taker::example("redis-taker", url))
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        let count = |command: &[&[u8]]| match self.server.command(command) {
            Reply::Integer(count) => usize::try_from(count).unwrap(),
            reply => panic!("{reply:?}"),
        };
        let queue = [b"{", key.as_bytes(), b"}:queue"].concat();
        let waiters = count(&[b"ZCARD", &queue]);
        let kind = self.server.command(&[&b"TYPE"[..], key.as_bytes()]);
        let holders = match kind {
            Reply::Simple(kind) if kind == "zset" => {
                // Without the mark of the mode.
                count(&[b"ZCARD", key.as_bytes()]) - 1
            }
            _ => count(&[b"EXISTS", key.as_bytes()]),
        };
        Some(Look::new(holders, waiters))
    }
}
