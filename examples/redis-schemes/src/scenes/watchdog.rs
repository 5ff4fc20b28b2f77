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

use crate::stage::{Fault, KEY, Pair, Report, Scene, connect, server};

pub(crate) async fn watchdog_dies() -> Result<Report> {
    let server = server();
    let mut a = Lock::connect(server.port(), "a").await?;
    let mut b = Lock::connect(server.port(), "b").await?;
    let mut scene = Scene::begin("7  watchdog, PUBLISH", "watchdog dies");
    scene.asks('A');
    a.lock().await?;
    scene.enters('A', Some(TTL));
    a.lock().await?;
    let removed = a.unlock().await?;
    scene.note(&format!(
        "A has re-entered and released once: lock removed: {removed}"
    ));
    a.kill_watchdog();
    scene.note("the watchdog of A dies, and nobody watches the watchdog");
    b.lock().await?;
    scene.asks('B');
    scene.enters('B', Some(TTL));
    scene.writes('B');
    scene.writes('A');
    scene.releases('A', a.unlock().await?);
    scene.judge(&[Fault::Exclusion, Fault::Fencing])
}

pub(crate) async fn fail_over() -> Result<Report> {
    let pair = Pair::part().await?;
    let mut a = Lock::connect(pair.master.port(), "a").await?;
    let mut scene = Scene::begin("7  watchdog, PUBLISH", "fail-over");
    scene.asks('A');
    a.lock().await?;
    scene.enters('A', Some(TTL));
    pair.fail_over()?;
    scene.note("the master dies; its replica, which knows of no lock, takes its place");
    let mut b = Lock::connect(pair.replica.port(), "b").await?;
    b.lock().await?;
    scene.asks('B');
    scene.enters('B', Some(TTL));
    scene.writes('B');
    if let Some(watchdog) = a.watchdog.take() {
        watchdog.await?;
    }
    scene.note("the watchdog of A fails, which is a line in a log file");
    scene.writes('A');
    scene.judge(&[Fault::Exclusion, Fault::Fencing])
}

/// A hash with one field, the owner, and how often it has entered.
struct Lock {
    client: Client,
    redis: MultiplexedConnection,
    owner: &'static str,
    watchdog: Option<JoinHandle<()>>,
}

impl Lock {
    async fn connect(port: u16, owner: &'static str) -> Result<Self> {
        let client = Client::open(("127.0.0.1", port))?;
        Ok(Self {
            client,
            redis: connect(port).await?,
            owner,
            watchdog: None,
        })
    }

    /// Waits for a message that the lock is free, or for the time at which it expires.
    async fn lock(&mut self) -> Result<()> {
        let mut subscription = self.client.get_async_pubsub().await?;
        subscription.subscribe(CHANNEL).await?;
        let mut messages = subscription.on_message();
        while let Some(left) = self.try_lock().await? {
            // Either is a reason to try again.
            timeout(left, messages.next()).await.ok();
        }
        if self.watchdog.is_none() {
            self.watchdog = Some(tokio::spawn(renew(self.redis.clone(), self.owner)));
        }
        Ok(())
    }

    /// Acquires the lock, or returns how long that of another owner lasts.
    async fn try_lock(&mut self) -> Result<Option<Duration>> {
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
        Ok(left.map(|left| Duration::from_millis(left + 1)))
    }

    /// Leaves once; whether that removed the lock.
    async fn unlock(&mut self) -> Result<bool> {
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

    fn kill_watchdog(&mut self) {
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.abort();
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.kill_watchdog();
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
    loop {
        sleep(TTL / 3).await;
        if !call.invoke_async(&mut redis).await.unwrap_or(false) {
            return;
        }
    }
}

const CHANNEL: &str = "lock:orders:channel";
const TTL: Duration = Duration::from_millis(600);
