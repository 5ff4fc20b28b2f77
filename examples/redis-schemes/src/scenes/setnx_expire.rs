//! 1: `SETNX`, then `EXPIRE`. A client that dies between the two leaves a lock without an end.

use std::time::Duration;

use anyhow::Result;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use crate::provocations::{self, clients};
use crate::stage::{self, FOREVER, Fault, Report, Scene};

pub(crate) async fn crash() -> Result<Report> {
    let (_server, [a, b]) = clients().await?;
    let scene = Scene::begin("1  SETNX, then EXPIRE", "crash between the two");
    let locks = [(a, true), (b, false)];
    let locks = locks.map(|(redis, dies_between)| Lock {
        redis,
        dies_between,
    });
    provocations::crash(scene, locks, "the lock has no end", &[Fault::Liveness]).await
}

struct Lock {
    redis: MultiplexedConnection,
    dies_between: bool,
}

impl stage::Lock for Lock {
    async fn acquire(&mut self) -> Result<Option<Duration>> {
        let acquired: bool = self.redis.set_nx(KEY, "locked").await?;
        if self.dies_between {
            return Ok(acquired.then_some(FOREVER));
        }
        let ends = acquired && self.redis.expire(KEY, TTL.as_secs() as i64).await?;
        Ok(ends.then_some(TTL))
    }

    async fn release(&mut self) -> Result<bool> {
        Ok(self.redis.del(KEY).await?)
    }
}

const KEY: &str = "lock:orders";
const TTL: Duration = Duration::from_secs(1);
