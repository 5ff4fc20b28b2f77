//! 6: `SET key value PX milliseconds NX` with a value of its own, and a release that compares it.
//! Nobody deletes the lock of another client. A client whose own lock has ended is not notified.

use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, ExistenceCheck, Script, SetExpiry, SetOptions};

use crate::provocations::connect;
use crate::stage::{self, Client, KEY, TTL, Valid};

/// The lock on one server; Redlock and MultiLock acquire several of them.
pub(crate) struct Lock {
    pub(crate) redis: MultiplexedConnection,
    pub(crate) value: String,
    pub(crate) ttl: Duration,
}

impl stage::Lock for Lock {
    const SCHEME: &str = "6  SET PX NX, unique value";

    async fn connect(client: Client) -> Result<Self> {
        Ok(Self {
            redis: connect(client.ports[0]).await?,
            value: format!("{}-9f3c", client.who),
            ttl: TTL,
        })
    }

    async fn acquire(&mut self) -> Valid {
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::PX(self.ttl.as_millis() as u64));
        let answer: Option<String> = self.redis.set_options(KEY, &self.value, options).await?;
        Ok(answer.map(|_| self.ttl))
    }

    async fn release(&mut self) -> Result<bool> {
        let script = Script::new(
            "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
             return redis.call('DEL', KEYS[1])",
        );
        let mut call = script.key(KEY);
        Ok(call.arg(&self.value).invoke_async(&mut self.redis).await?)
    }
}
