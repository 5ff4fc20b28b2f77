//! 1: `SETNX`, then `EXPIRE`. A client that dies between the two leaves a lock without an end.

use anyhow::Result;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use crate::provocations::connect;
use crate::stage::{self, Client, FOREVER, KEY, TTL, Valid};

pub(crate) struct Lock {
    redis: MultiplexedConnection,
    dies_between: bool,
}

impl stage::Lock for Lock {
    const SCHEME: &str = "1  SETNX, then EXPIRE";

    async fn connect(client: Client) -> Result<Self> {
        Ok(Self {
            redis: connect(client.ports[0]).await?,
            dies_between: client.who == 'A',
        })
    }

    async fn acquire(&mut self) -> Valid {
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
