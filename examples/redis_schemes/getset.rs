//! 2: `SETNX` with the time of expiry as the value; who finds an old one takes over by `GETSET`.
//!
//! A crash does not matter any more. The clocks of the clients do, and who loses the race for an
//! expired lock has overwritten the value of who won it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::invariant::Invariant;
use crate::report::Report;
use crate::scene::{Scene, Script};
use crate::stage::{Result, connect, look, server, work};

pub(crate) async fn clocks_differ() -> Result<Report> {
    let server = server();
    let port = server.port();
    let mut a = Lock::new(connect(port).await?, Duration::ZERO);
    let mut b = Lock::new(connect(port).await?, Duration::from_secs(60));
    let mut c = Lock::new(connect(port).await?, Duration::from_secs(61));
    let scene = Scene::begin(Script {
        rung: "2",
        scheme: "SETNX + time, GETSET",
        how: "the value says when it ends; GETSET takes an old one over",
        provocation: "clocks differ",
        breaks: &[
            Invariant::MutualExclusion,
            Invariant::Ownership,
            Invariant::LossSignal,
            Invariant::Fencing,
        ],
    });

    if a.acquire().await? {
        scene.enters("A", "SETNX with the time in 10 s");
    }
    scene.notes("B", "has a clock 60 s ahead: to it the lock of A is old");
    scene.notes("C", "has a clock 61 s ahead: the same");
    let (seen_by_b, seen_by_c) = (b.expired().await?, c.expired().await?);
    if b.take_over(seen_by_b).await? {
        scene.enters("B", "GETSET, and found what it had seen");
    }
    if !c.take_over(seen_by_c).await? {
        scene.notes("C", "GETSET, and found the value of B: too late");
    }
    let value = look(&server, &["GET", KEY])?;
    if value != b.mine && value == c.mine {
        scene.overwrites("C", "B");
    }
    work().await;
    scene.writes("A", None);
    scene.leaves("A");
    scene.releases("A", a.release().await?);
    scene.writes("B", None);
    scene.leaves("B");
    scene.releases("B", b.release().await?);
    Ok(scene.report())
}

struct Lock {
    redis: MultiplexedConnection,
    /// By how much the clock of this client is ahead.
    ahead: Duration,
    /// What it has written last.
    mine: String,
}

impl Lock {
    fn new(redis: MultiplexedConnection, ahead: Duration) -> Self {
        let mine = String::new();
        Self { redis, ahead, mine }
    }

    async fn acquire(&mut self) -> Result<bool> {
        self.mine = (self.now()? + TTL).as_millis().to_string();
        if self.redis.set_nx(KEY, &self.mine).await? {
            return Ok(true);
        }
        let seen = self.expired().await?;
        self.take_over(seen).await
    }

    /// The time in the lock if it is over.
    async fn expired(&mut self) -> Result<Option<String>> {
        let seen: Option<String> = self.redis.get(KEY).await?;
        let now = self.now()?.as_millis();
        let is_old = |seen: &String| seen.parse().is_ok_and(|until: u128| until < now);
        Ok(seen.filter(is_old))
    }

    /// Takes an expired lock if nobody was faster.
    async fn take_over(&mut self, seen: Option<String>) -> Result<bool> {
        if seen.is_none() {
            return Ok(false);
        }
        self.mine = (self.now()? + TTL).as_millis().to_string();
        let found: Option<String> = self.redis.getset(KEY, &self.mine).await?;
        Ok(found == seen)
    }

    async fn release(&mut self) -> Result<bool> {
        let value: Option<String> = self.redis.get(KEY).await?;
        Ok(value.as_ref() == Some(&self.mine) && self.redis.del(KEY).await?)
    }

    fn now(&self) -> Result<Duration> {
        Ok(SystemTime::now().duration_since(UNIX_EPOCH)? + self.ahead)
    }
}

const KEY: &str = "lock:orders";
const TTL: Duration = Duration::from_secs(10);
