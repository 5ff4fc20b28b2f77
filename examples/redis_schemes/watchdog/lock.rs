use std::time::{Duration, Instant};

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{Client, Script as Lua};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::stage::{Result, connect};

/// A hash with one field, the owner, and how often it has entered.
pub(super) struct Lock {
    client: Client,
    redis: MultiplexedConnection,
    owner: &'static str,
    watchdog: Option<JoinHandle<()>>,
}

impl Lock {
    pub(super) async fn connect(port: u16, owner: &'static str) -> Result<Self> {
        Ok(Self {
            client: Client::open(("127.0.0.1", port))?,
            redis: connect(port).await?,
            owner,
            watchdog: None,
        })
    }

    /// Waits for the lock: for a message that it is free, or the time at which it expires.
    pub(super) async fn lock(&mut self) -> Result<()> {
        if self.try_lock().await?.is_none() {
            return Ok(());
        }
        let mut subscription = self.client.get_async_pubsub().await?;
        subscription.subscribe(CHANNEL).await?;
        let mut messages = subscription.on_message();
        while let Some(left) = self.try_lock().await? {
            // Either is a reason to ask again.
            timeout(left, messages.next()).await.ok();
        }
        Ok(())
    }

    /// The same, and says when.
    pub(super) async fn lock_at(&mut self) -> Result<Instant> {
        self.lock().await?;
        Ok(Instant::now())
    }

    /// Takes the lock, or says how long it lasts.
    async fn try_lock(&mut self) -> Result<Option<Duration>> {
        let lua = Lua::new(
            "if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
               return redis.call('PTTL', KEYS[1])
             end
             redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
             redis.call('PEXPIRE', KEYS[1], ARGV[2])
             return false",
        );
        let mut run = lua.key(KEY);
        let left: Option<u64> = run
            .arg(self.owner)
            .arg(TTL)
            .invoke_async(&mut self.redis)
            .await?;
        if left.is_none() && self.watchdog.is_none() {
            self.watchdog = Some(tokio::spawn(watch(self.redis.clone(), self.owner)));
        }
        Ok(left.map(|left| Duration::from_millis(left + 1)))
    }

    /// Leaves once; whether that removed the lock.
    pub(super) async fn unlock(&mut self) -> Result<bool> {
        let lua = Lua::new(
            "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
             if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end
             redis.call('DEL', KEYS[1])
             redis.call('PUBLISH', KEYS[2], 'free')
             return 1",
        );
        let mut run = lua.key(KEY);
        let removed = run
            .key(CHANNEL)
            .arg(self.owner)
            .invoke_async(&mut self.redis)
            .await?;
        if removed {
            self.kill_watchdog();
        }
        Ok(removed)
    }

    /// Waits until somebody has subscribed.
    pub(super) async fn has_waiter(&mut self) -> Result<()> {
        loop {
            let mut command = redis::cmd("PUBSUB");
            let counts = command.arg("NUMSUB").arg(CHANNEL);
            let (_, count): (String, u64) = counts.query_async(&mut self.redis).await?;
            if count > 0 {
                return Ok(());
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) fn kill_watchdog(&mut self) {
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.abort();
        }
    }

    /// Waits until the watchdog has given up.
    pub(super) async fn watchdog_ends(&mut self) -> Result<()> {
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.await?;
        }
        Ok(())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.kill_watchdog();
    }
}

/// Extends the lock at a third of its time. There is nobody to tell when that does not work.
async fn watch(mut redis: MultiplexedConnection, owner: &'static str) {
    let lua = Lua::new(
        "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
         return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    );
    loop {
        sleep(Duration::from_millis(TTL / 3)).await;
        let mut run = lua.key(KEY);
        let renewed = run.arg(owner).arg(TTL).invoke_async(&mut redis).await;
        if !renewed.unwrap_or(false) {
            return;
        }
    }
}

const KEY: &str = "lock:orders";
const CHANNEL: &str = "lock:orders:channel";
/// Milliseconds.
pub(super) const TTL: u64 = 600;
