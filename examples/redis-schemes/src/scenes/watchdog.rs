//! 7: a watchdog renews the lock, its owner may re-enter, and a release is published. Work may take
//! as long as it wants while the watchdog runs and the server remembers; if one of the two fails,
//! the holder is not notified.

use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt as _;
use redis::aio::MultiplexedConnection;
use redis::{Client, Script};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::provocations::{Pair, connect, server, taken_over};
use crate::stage::{self, Fault, Lock as _, Report, Scene};

pub(crate) async fn watchdog_dies() -> Result<Report> {
    let server = server();
    let mut a = Lock::connect(server.port(), "a").await?;
    let mut b = Lock::connect(server.port(), "b").await?;
    let mut scene = Scene::begin("7  watchdog, PUBLISH", "watchdog dies");
    scene.enter('A', &mut a).await?;
    a.acquire().await?;
    let removed = a.release().await?;
    scene.note(&format!(
        "A re-enters and releases once: lock removed: {removed}"
    ));
    a.die();
    scene.note("the watchdog of A dies, and nobody watches the watchdog");
    taken_over(&mut scene, &mut a, &mut b).await?;
    scene.release('A', &mut a, true).await?;
    scene.judge(&[Fault::Exclusion, Fault::Fencing])
}

pub(crate) async fn fail_over() -> Result<Report> {
    let pair = Pair::part().await?;
    let mut a = Lock::connect(pair.master.port(), "a").await?;
    let mut scene = Scene::begin("7  watchdog, PUBLISH", "fail-over");
    scene.enter('A', &mut a).await?;
    pair.fail_over(&mut scene)?;
    if let Some(watchdog) = a.watchdog.take() {
        watchdog.await?;
    }
    scene.note("the watchdog of A fails, which is a line in a log file");
    let mut b = Lock::connect(pair.replica.port(), "b").await?;
    taken_over(&mut scene, &mut a, &mut b).await?;
    scene.judge(&[Fault::Exclusion, Fault::Fencing])
}

/// A hash with one field, the owner, and how often it has entered.
struct Lock {
    client: Client,
    redis: MultiplexedConnection,
    owner: &'static str,
    watchdog: Option<JoinHandle<()>>,
    /// How long the lock of another owner lasts.
    left: Duration,
}

impl Lock {
    async fn connect(port: u16, owner: &'static str) -> Result<Self> {
        Ok(Self {
            client: Client::open(("127.0.0.1", port))?,
            redis: connect(port).await?,
            owner,
            watchdog: None,
            left: TTL,
        })
    }
}

impl stage::Lock for Lock {
    async fn acquire(&mut self) -> Result<Option<Duration>> {
        let script = Script::new(
            "if redis.call('EXISTS', KEYS[1]) == 1
                 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
               return redis.call('PTTL', KEYS[1])
             end
             redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
             redis.call('PEXPIRE', KEYS[1], ARGV[2])
             return false",
        );
        let mut call = script.key(KEY);
        call.arg(self.owner).arg(TTL.as_millis() as u64);
        let left: Option<u64> = call.invoke_async(&mut self.redis).await?;
        if let Some(left) = left {
            self.left = Duration::from_millis(left + 1);
            return Ok(None);
        }
        if self.watchdog.is_none() {
            self.watchdog = Some(tokio::spawn(renew(self.redis.clone(), self.owner)));
        }
        Ok(Some(TTL))
    }

    /// Leaves once, and tells the waiters if that removed the lock.
    async fn release(&mut self) -> Result<bool> {
        let script = Script::new(
            "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
             if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end
             redis.call('DEL', KEYS[1])
             redis.call('PUBLISH', KEYS[2], 'free')
             return 1",
        );
        let mut call = script.key(KEY);
        call.key(CHANNEL).arg(self.owner);
        Ok(call.invoke_async(&mut self.redis).await?)
    }

    /// Waits for a message that the lock is free, or for the time at which it expires.
    async fn wait(&mut self) -> Result<()> {
        let mut subscription = self.client.get_async_pubsub().await?;
        subscription.subscribe(CHANNEL).await?;
        // Either is a reason to try again.
        timeout(self.left, subscription.on_message().next())
            .await
            .ok();
        Ok(())
    }

    fn die(&mut self) {
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.abort();
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        stage::Lock::die(self);
    }
}

/// Extends the lock each third of its TTL. There is nobody to notify when that fails.
async fn renew(mut redis: MultiplexedConnection, owner: &'static str) {
    let script = Script::new(
        "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
         return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    );
    let mut call = script.key(KEY);
    call.arg(owner).arg(TTL.as_millis() as u64);
    let mut is_held = true;
    while is_held {
        sleep(TTL / 3).await;
        is_held = call.invoke_async(&mut redis).await.unwrap_or(false);
    }
}

const KEY: &str = "lock:orders";
const CHANNEL: &str = "lock:orders:channel";
const TTL: Duration = Duration::from_millis(600);
