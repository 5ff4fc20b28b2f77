//! 3: `SETNX` with the time of expiry as the value; a client that finds an old one takes over by
//! `GETSET`. A crash does no harm. The clocks of the clients do, and the loser of the race for an
//! old lock has overwritten the value of the winner.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use crate::stage::{Fault, KEY, Report, Scene, connect, server};

pub(crate) async fn clocks_differ() -> Result<Report> {
    let server = server();
    let mut a = Lock::new(connect(server.port()).await?, Duration::ZERO);
    let mut b = Lock::new(connect(server.port()).await?, Duration::from_secs(60));
    let mut c = Lock::new(connect(server.port()).await?, Duration::from_secs(61));
    let mut scene = Scene::begin("3  SETNX time, GETSET", "clocks differ");
    scene.asks('A');
    if a.acquire().await? {
        scene.enters('A', Some(TTL));
    }
    scene.note("the clocks of B and C are a minute ahead: to both the lock of A is old");
    scene.asks('B');
    scene.asks('C');
    let (seen_by_b, seen_by_c) = (b.old_value().await?, c.old_value().await?);
    if b.take_over(seen_by_b).await? {
        scene.enters('B', Some(TTL));
    }
    if !c.take_over(seen_by_c).await? {
        scene.gives_up(
            'C',
            "it found the value of B, which its own has replaced by now",
        );
    }
    scene.writes('B');
    scene.writes('A');
    scene.releases('A', a.release().await?);
    scene.releases('B', b.release().await?);
    scene.judge(&[Fault::Exclusion, Fault::Ownership, Fault::Fencing])
}

struct Lock {
    redis: MultiplexedConnection,
    /// By how much the clock of this client is ahead.
    ahead: Duration,
    /// The value that it has written last.
    own: String,
}

impl Lock {
    fn new(redis: MultiplexedConnection, ahead: Duration) -> Self {
        Self {
            redis,
            ahead,
            own: String::new(),
        }
    }

    async fn acquire(&mut self) -> Result<bool> {
        self.own = (self.now()? + TTL.as_millis()).to_string();
        if self.redis.set_nx(KEY, &self.own).await? {
            return Ok(true);
        }
        let seen = self.old_value().await?;
        self.take_over(seen).await
    }

    /// The value of the lock if it is in the past.
    async fn old_value(&mut self) -> Result<Option<String>> {
        let (seen, now): (Option<String>, _) = (self.redis.get(KEY).await?, self.now()?);
        Ok(seen.filter(|seen| seen.parse().is_ok_and(|until: u128| until < now)))
    }

    async fn take_over(&mut self, seen: Option<String>) -> Result<bool> {
        self.own = (self.now()? + TTL.as_millis()).to_string();
        let found: Option<String> = self.redis.getset(KEY, &self.own).await?;
        Ok(seen.is_some() && found == seen)
    }

    async fn release(&mut self) -> Result<bool> {
        let value: Option<String> = self.redis.get(KEY).await?;
        Ok(value.as_ref() == Some(&self.own) && self.redis.del(KEY).await?)
    }

    fn now(&self) -> Result<u128> {
        Ok((SystemTime::UNIX_EPOCH.elapsed()? + self.ahead).as_millis())
    }
}

const TTL: Duration = Duration::from_secs(10);
