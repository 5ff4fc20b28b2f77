//! 6: `SET key value PX milliseconds NX` with a value of its own, and a release that compares it.
//! Nobody deletes the lock of another client. A client whose own lock has ended is not notified.

use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, ExistenceCheck, Script, SetExpiry, SetOptions};

use crate::provocations::{self, clients};
use crate::stage::{self, Fault, Report, Scene};

pub(crate) async fn work_outlives_lock() -> Result<Report> {
    let (_server, [a, b, c]) = clients().await?;
    let scene = Scene::begin("6  SET PX NX, unique value", "work outlives the lock");
    let locks = [(a, "a-9f3c"), (b, "b-71d0"), (c, "c-e2a8")];
    let locks = locks.map(|(redis, value)| Lock {
        redis,
        value,
        ttl: TTL,
    });
    provocations::long_work(scene, locks, &[Fault::Exclusion, Fault::Fencing]).await
}

/// The lock on one server; Redlock and MultiLock acquire several of them.
pub(crate) struct Lock {
    pub(crate) redis: MultiplexedConnection,
    pub(crate) value: &'static str,
    pub(crate) ttl: Duration,
}

impl stage::Lock for Lock {
    async fn acquire(&mut self) -> Result<Option<Duration>> {
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::PX(self.ttl.as_millis() as u64));
        let answer: Option<String> = self.redis.set_options(KEY, self.value, options).await?;
        Ok(answer.map(|_| self.ttl))
    }

    async fn release(&mut self) -> Result<bool> {
        let script = Script::new(
            "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
             return redis.call('DEL', KEYS[1])",
        );
        let mut call = script.key(KEY);
        Ok(call.arg(self.value).invoke_async(&mut self.redis).await?)
    }
}

const KEY: &str = "lock:orders";
const TTL: Duration = Duration::from_secs(1);
