//! 6: `SET key value PX milliseconds NX` with a value of its own, and a release that compares it.
//! Nobody deletes the lock of another client. A client whose own lock has ended is not notified.

use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, ExistenceCheck, Script, SetExpiry, SetOptions};
use tokio::time::sleep;

use crate::stage::{Fault, KEY, Report, Scene, connect, server};

pub(crate) async fn work_outlives_lock() -> Result<Report> {
    let server = server();
    let mut a = Lock::new(connect(server.port()).await?, "a-9f3c");
    let mut b = Lock::new(connect(server.port()).await?, "b-71d0");
    let mut scene = Scene::begin("6  SET PX NX, unique value", "work outlives the lock");
    scene.asks('A');
    if a.acquire(TTL).await? {
        scene.enters('A', Some(TTL));
    }
    while !b.acquire(TTL).await? {
        sleep(Duration::from_millis(10)).await;
    }
    scene.asks('B');
    scene.enters('B', Some(TTL));
    scene.writes('B');
    scene.writes('A');
    scene.releases('A', a.release().await?);
    scene.judge(&[Fault::Exclusion, Fault::Fencing])
}

/// The lock on one server; Redlock and MultiLock acquire several of them.
pub(crate) struct Lock {
    redis: MultiplexedConnection,
    value: &'static str,
}

impl Lock {
    pub(crate) fn new(redis: MultiplexedConnection, value: &'static str) -> Self {
        Self { redis, value }
    }

    pub(crate) async fn acquire(&mut self, ttl: Duration) -> Result<bool> {
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::PX(ttl.as_millis() as u64));
        let answer: Option<String> = self.redis.set_options(KEY, self.value, options).await?;
        Ok(answer.is_some())
    }

    pub(crate) async fn release(&mut self) -> Result<bool> {
        let script = Script::new(
            "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
             return redis.call('DEL', KEYS[1])",
        );
        Ok(script
            .key(KEY)
            .arg(self.value)
            .invoke_async(&mut self.redis)
            .await?)
    }
}

const TTL: Duration = Duration::from_secs(1);
