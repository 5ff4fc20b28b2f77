//! 7: a watchdog renews the lock, its owner may re-enter, and a release is published. Work may take
//! as long as it wants while the watchdog runs and the server remembers; if one of the two fails,
//! the holder is not notified.

use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt as _;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Script};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::provocations::{clients, connect, taken_over};
use crate::stage::{self, Client, Fault, KEY, Lock as _, Scene, Valid};

pub(crate) async fn watchdog_dies() -> Result<Scene> {
    let (_server, [mut a, mut b]) = clients::<Lock, 2>(1, true).await?;
    let mut scene = Scene::begin::<Lock>("watchdog dies");
    scene.enter('A', &mut a).await?;
    a.acquire().await?;
    let removed = a.release().await?;
    scene.note(&format!(
        "A re-enters and releases once: lock removed: {removed}"
    ));
    a.watchdog.abort_all();
    scene.note("the watchdog of A dies, and nobody watches the watchdog");
    taken_over(&mut scene, &mut a, &mut b).await?;
    scene.release('A', &mut a, true).await?;
    scene.judge(&[Fault::Exclusion, Fault::Fencing])
}

/// A hash with one field, the owner, and how often it has entered.
pub(crate) struct Lock {
    server: redis::Client,
    redis: MultiplexedConnection,
    owner: String,
    /// It ends with the lock of this client.
    watchdog: JoinSet<()>,
    /// How long the lock of another owner lasts.
    left: Duration,
}

impl stage::Lock for Lock {
    const SCHEME: &str = "7  watchdog, PUBLISH";

    async fn connect(client: Client) -> Result<Self> {
        Ok(Self {
            server: redis::Client::open(("127.0.0.1", client.ports[0]))?,
            redis: connect(client.ports[0]).await?,
            owner: client.who.to_string(),
            watchdog: JoinSet::new(),
            left: TTL,
        })
    }

    async fn acquire(&mut self) -> Valid {
        let script = "if redis.call('EXISTS', KEYS[1]) == 1
               and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
             return redis.call('PTTL', KEYS[1])
           end
           redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
           redis.call('PEXPIRE', KEYS[1], ARGV[2])
           return false";
        let left: Option<u64> = call(script, &mut self.redis, &self.owner).await?;
        if let Some(left) = left {
            self.left = Duration::from_millis(left + 1);
            return Ok(None);
        }
        if self.watchdog.is_empty() {
            self.watchdog
                .spawn(renew(self.redis.clone(), self.owner.clone()));
        }
        Ok(Some(TTL))
    }

    /// Leaves once, and tells the waiters if that removed the lock.
    async fn release(&mut self) -> Result<bool> {
        let script = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
           if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end
           redis.call('DEL', KEYS[1])
           redis.call('PUBLISH', KEYS[2], 'free')
           return 1";
        call(script, &mut self.redis, &self.owner).await
    }

    /// Waits for a message that the lock is free, or for the time at which it expires.
    async fn wait(&mut self) -> Result<()> {
        let mut subscription = self.server.get_async_pubsub().await?;
        subscription.subscribe(CHANNEL).await?;
        // Either is a reason to try again.
        timeout(self.left, subscription.on_message().next())
            .await
            .ok();
        Ok(())
    }
}

/// Extends the lock each third of its TTL. There is nobody to notify when that fails.
async fn renew(mut redis: MultiplexedConnection, owner: String) {
    let script = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
       return redis.call('PEXPIRE', KEYS[1], ARGV[2])";
    let mut is_held = true;
    while is_held {
        sleep(TTL / 3).await;
        is_held = call(script, &mut redis, &owner).await.unwrap_or(false);
    }
}

async fn call<T: FromRedisValue>(
    script: &str,
    redis: &mut MultiplexedConnection,
    owner: &str,
) -> Result<T> {
    let script = Script::new(script);
    let mut call = script.key(KEY);
    call.key(CHANNEL).arg(owner).arg(TTL.as_millis() as u64);
    Ok(call.invoke_async(redis).await?)
}

const CHANNEL: &str = "lock:orders:channel";
const TTL: Duration = Duration::from_millis(600);
