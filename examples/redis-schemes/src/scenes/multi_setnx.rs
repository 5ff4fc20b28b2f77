//! 2: `MULTI`, `SETNX`, `PEXPIRE`, `EXEC`. The transaction runs as a whole, and that is the fault:
//! `PEXPIRE` does not depend on `SETNX`, so each loser extends the lock that it did not get. A dead
//! holder's lock lasts for as long as anybody wants it.

use std::time::Duration;

use anyhow::Result;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use crate::provocations::{self, clients};
use crate::stage::{self, Fault, Report, Scene};

pub(crate) async fn crash() -> Result<Report> {
    let (_server, redis) = clients().await?;
    let scene = Scene::begin("2  MULTI SETNX PEXPIRE", "crash, and a waiter");
    let why = "each attempt has extended the lock";
    provocations::crash(scene, redis.map(Lock), why, &[Fault::Liveness]).await
}

struct Lock(MultiplexedConnection);

impl stage::Lock for Lock {
    async fn acquire(&mut self) -> Result<Option<Duration>> {
        let mut transaction = redis::pipe();
        transaction.atomic().set_nx(KEY, "locked");
        transaction.pexpire(KEY, TTL.as_millis() as i64).ignore();
        let (acquired,): (bool,) = transaction.query_async(&mut self.0).await?;
        Ok(acquired.then_some(TTL))
    }

    async fn release(&mut self) -> Result<bool> {
        Ok(self.0.del(KEY).await?)
    }
}

const KEY: &str = "lock:orders";
const TTL: Duration = Duration::from_secs(1);
