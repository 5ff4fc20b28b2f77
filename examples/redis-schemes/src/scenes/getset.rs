//! 3: `SETNX` with the time of expiry as the value; a client that finds an old one takes over by
//! `GETSET`. A crash does no harm. The clocks of the clients do, and the loser of the race for an
//! old lock has overwritten the value of the winner.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use crate::provocations::{clients, connect};
use crate::stage::{self, Client, Fault, KEY, Scene, Valid};

pub(crate) async fn clocks_differ() -> Result<Scene> {
    let (_server, [mut a, mut b, mut c]) = clients::<Lock, 3>(1, true).await?;
    let mut scene = Scene::begin::<Lock>("clocks differ");
    scene.enter('A', &mut a).await?;
    scene.note("the clocks of B and C are a minute ahead: to both the lock of A is old");
    scene.asks('B');
    scene.asks('C');
    let (seen_by_b, seen_by_c) = (b.old_value().await?, c.old_value().await?);
    if b.take_over(seen_by_b).await? {
        scene.enters('B', TTL, &b);
    }
    if !c.take_over(seen_by_c).await? {
        scene.is_refused('C');
        scene.note("C finds the value of B, which its own has replaced by that");
    }
    scene.writes('B', &b);
    scene.writes('A', &a);
    scene.release('A', &mut a, true).await?;
    scene.release('B', &mut b, true).await?;
    scene.judge(&[Fault::Exclusion, Fault::Fencing, Fault::Ownership])
}

struct Lock {
    redis: MultiplexedConnection,
    /// By how much the clock of this client is ahead.
    ahead: Duration,
    /// The value that it has written last.
    own: String,
}

impl Lock {
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

    fn now(&self) -> Result<u128> {
        Ok((SystemTime::UNIX_EPOCH.elapsed()? + self.ahead).as_millis())
    }
}

impl stage::Lock for Lock {
    const SCHEME: &str = "3  SETNX time, GETSET";

    async fn connect(client: Client) -> Result<Self> {
        let ahead = if client.who == 'A' { 0 } else { 60 };
        Ok(Self {
            redis: connect(client.ports[0]).await?,
            ahead: Duration::from_secs(ahead),
            own: String::new(),
        })
    }

    async fn acquire(&mut self) -> Valid {
        self.own = (self.now()? + TTL.as_millis()).to_string();
        if self.redis.set_nx(KEY, &self.own).await? {
            return Ok(Some(TTL));
        }
        let seen = self.old_value().await?;
        Ok(self.take_over(seen).await?.then_some(TTL))
    }

    async fn release(&mut self) -> Result<bool> {
        let value: Option<String> = self.redis.get(KEY).await?;
        Ok(value.as_ref() == Some(&self.own) && self.redis.del(KEY).await?)
    }
}

const TTL: Duration = Duration::from_secs(10);
