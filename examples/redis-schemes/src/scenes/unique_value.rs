//! 6, 8 and 9: `SET key value PX milliseconds NX` with a value of its own, and a release that compares it.
//! Nobody deletes the lock of another client. A client whose own lock has ended is not notified.
//!
//! 8 and 9 do that on several independent masters. MultiLock acquires it on all of them: none can forget a
//! lock alone, and the first that dies locks everybody out. Redlock acquires a majority: one of three may
//! die. A node that forgets makes a second majority, and no number of nodes stops a holder that was paused
//! from writing when it wakes.

use std::time::{Duration, Instant};

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, ExistenceCheck, Script, SetExpiry, SetOptions};
use tokio::time::timeout;

use crate::provocations::connect;
use crate::stage::{Client, KEY, Lock, TTL, Valid};

/// The lock on one server.
pub(crate) struct UniqueValue {
    redis: MultiplexedConnection,
    value: String,
    ttl: Duration,
}

impl Lock for UniqueValue {
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
        let acquired: bool = self.redis.set_options(KEY, &self.value, options).await?;
        Ok(acquired.then_some(self.ttl))
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

/// A lock on three masters, of which so many must grant it.
pub(crate) struct Masters<const NEEDED: usize> {
    client: Client,
    /// Others than a client that is paused have time for a restart of servers.
    ttl: Duration,
}

pub(crate) type MultiLock = Masters<3>;
pub(crate) type Redlock = Masters<2>;

impl<const NEEDED: usize> Masters<NEEDED> {
    async fn lock(&self, port: u16) -> Result<UniqueValue> {
        let (redis, value) = (connect(port).await?, self.client.who.to_string());
        let ttl = self.ttl;
        Ok(UniqueValue { redis, value, ttl })
    }
}

impl<const NEEDED: usize> Lock for Masters<NEEDED> {
    const SCHEME: &str = match NEEDED {
        3 => "8  all masters (MultiLock)",
        _ => "9  a majority (Redlock)",
    };
    const SERVERS: usize = 3;

    async fn connect(client: Client) -> Result<Self> {
        let ttl = Duration::from_secs(if client.renews { 20 } else { 2 });
        Ok(Self { client, ttl })
    }

    /// Asks one node after the other, which is short to read; asking all at once leaves more of the
    /// time.
    async fn acquire(&mut self) -> Valid {
        let (start, mut granted) = (Instant::now(), 0);
        for port in &self.client.ports {
            let answer = async { self.lock(*port).await?.acquire().await };
            let answer = timeout(NODE_TIMEOUT, answer).await;
            granted += usize::from(matches!(answer, Ok(Ok(Some(_)))));
        }
        let drift = self.ttl / 100 + Duration::from_millis(2);
        let valid = self.ttl.checked_sub(start.elapsed() + drift);
        if granted >= NEEDED && valid.is_some() {
            return Ok(valid);
        }
        self.release().await?;
        Ok(None)
    }

    /// Whether one of the nodes has removed a lock; the others forget it at the end of its TTL.
    async fn release(&mut self) -> Result<bool> {
        let mut removed = false;
        for port in &self.client.ports {
            let answer = async { self.lock(*port).await?.release().await };
            let answer = timeout(NODE_TIMEOUT, answer).await;
            removed |= matches!(answer, Ok(Ok(true)));
        }
        Ok(removed)
    }
}

/// Of a busy machine; a node that is down refuses at once.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);
