//! 2: `MULTI`, `SETNX`, `PEXPIRE`, `EXEC`. The transaction runs as a whole, and that is the fault:
//! `PEXPIRE` does not depend on `SETNX`, so each loser extends the lock that it did not get. A dead
//! holder's lock lasts for as long as anybody wants it.

use anyhow::Result;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use crate::provocations::connect;
use crate::stage::{self, Client, KEY, TTL, Valid};

pub(crate) struct Lock(MultiplexedConnection);

impl stage::Lock for Lock {
    const SCHEME: &str = "2  MULTI SETNX PEXPIRE";

    async fn connect(client: Client) -> Result<Self> {
        connect(client.ports[0]).await.map(Self)
    }

    async fn acquire(&mut self) -> Valid {
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
