//! 7: a watchdog renews the lock, and its owner may re-enter. Work may take as long as it wants while the
//! watchdog runs and the server remembers; if one of the two fails, the holder is not notified.

use std::time::Duration;

use anyhow::Result;
use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::sleep;

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
    redis: MultiplexedConnection,
    owner: String,
    /// It ends with the lock of this client.
    watchdog: JoinSet<()>,
}

impl stage::Lock for Lock {
    const SCHEME: &str = "7  watchdog, re-entry";

    async fn connect(client: Client) -> Result<Self> {
        Ok(Self {
            redis: connect(client.ports[0]).await?,
            owner: client.who.to_string(),
            watchdog: JoinSet::new(),
        })
    }

    async fn acquire(&mut self) -> Valid {
        let script = "if redis.call('EXISTS', KEYS[1]) == 1
               and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
             return 0
           end
           redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
           return redis.call('PEXPIRE', KEYS[1], ARGV[2])";
        let acquired = call(script, &mut self.redis, &self.owner).await?;
        if acquired && self.watchdog.is_empty() {
            let renewal = renew(self.redis.clone(), self.owner.clone());
            self.watchdog.spawn(renewal);
        }
        Ok(acquired.then_some(TTL))
    }

    /// Leaves once, and tells whether that removed the lock.
    async fn release(&mut self) -> Result<bool> {
        let script = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
           if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end
           return redis.call('DEL', KEYS[1])";
        call(script, &mut self.redis, &self.owner).await
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

async fn call(script: &str, redis: &mut MultiplexedConnection, owner: &str) -> Result<bool> {
    let script = Script::new(script);
    let mut call = script.key(KEY);
    call.arg(owner).arg(TTL.as_millis() as u64);
    Ok(call.invoke_async(redis).await?)
}

const TTL: Duration = Duration::from_millis(600);
