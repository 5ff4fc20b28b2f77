//! 4: `SETNX` and `PEXPIRE` in one script. Neither crashes nor clocks do harm, and `PEXPIRE` depends
//! on `SETNX`. A release deletes whatever lock there is.

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, Script};

use crate::provocations::connect;
use crate::stage::{self, Client, KEY, TTL, Valid};

pub(crate) struct Lock(MultiplexedConnection);

impl stage::Lock for Lock {
    const SCHEME: &str = "4  SETNX PEXPIRE in Lua";

    async fn connect(client: Client) -> Result<Self> {
        connect(client.ports[0]).await.map(Self)
    }

    async fn acquire(&mut self) -> Valid {
        let script = Script::new(
            "if redis.call('SETNX', KEYS[1], 'locked') == 0 then return 0 end
             return redis.call('PEXPIRE', KEYS[1], ARGV[1])",
        );
        let mut call = script.key(KEY);
        call.arg(TTL.as_millis() as u64);
        let acquired: bool = call.invoke_async(&mut self.0).await?;
        Ok(acquired.then_some(TTL))
    }

    async fn release(&mut self) -> Result<bool> {
        Ok(self.0.del(KEY).await?)
    }
}
