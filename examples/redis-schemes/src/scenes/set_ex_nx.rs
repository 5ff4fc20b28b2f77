//! 5: `SET key value EX seconds NX`. One command instead of a script, and no safer: work that
//! outlives the lock goes on beside the next holder and ends with the deletion of its lock.

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, ExistenceCheck, SetExpiry, SetOptions};

use crate::provocations::connect;
use crate::stage::{self, Client, KEY, TTL, Valid};

pub(crate) struct Lock(MultiplexedConnection);

impl stage::Lock for Lock {
    const SCHEME: &str = "5  SET EX NX";

    async fn connect(client: Client) -> Result<Self> {
        connect(client.ports[0]).await.map(Self)
    }

    async fn acquire(&mut self) -> Valid {
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::EX(TTL.as_secs()));
        let answer: Option<String> = self.0.set_options(KEY, "locked", options).await?;
        Ok(answer.map(|_| TTL))
    }

    async fn release(&mut self) -> Result<bool> {
        Ok(self.0.del(KEY).await?)
    }
}
