//! 1, 2, 4 and 5: the client that creates the key holds the lock, and a release deletes whatever key there is.
//!
//! 1. `SETNX`, then `EXPIRE`. A client that dies between the two leaves a lock without an end.
//! 2. `MULTI`, `SETNX`, `PEXPIRE`, `EXEC`. The transaction runs as a whole, and that is the fault: `PEXPIRE`
//!    does not depend on `SETNX`, so each loser extends the lock that it did not get. A dead holder's lock
//!    lasts for as long as anybody wants it.
//! 4. `SETNX` and `PEXPIRE` in one script. Neither crashes nor clocks do harm, and `PEXPIRE` depends on
//!    `SETNX`.
//! 5. `SET key value EX seconds NX`. One command instead of a script, and no safer: work that outlives the
//!    lock goes on beside the next holder and ends with the deletion of its lock.

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, ExistenceCheck, Script, SetExpiry, SetOptions};

use crate::provocations::connect;
use crate::stage::{Client, FOREVER, KEY, Lock, TTL, Valid};

pub(crate) type SetnxExpire = OneKey<1>;
pub(crate) type MultiSetnx = OneKey<2>;
pub(crate) type Lua = OneKey<4>;
pub(crate) type SetExNx = OneKey<5>;

pub(crate) struct OneKey<const SCHEME: usize> {
    redis: MultiplexedConnection,
    /// Between two commands, where there are two.
    dies_between: bool,
}

impl<const SCHEME: usize> Lock for OneKey<SCHEME> {
    const SCHEME: &str = match SCHEME {
        1 => "1  SETNX, then EXPIRE",
        2 => "2  MULTI SETNX PEXPIRE",
        4 => "4  SETNX PEXPIRE in Lua",
        _ => "5  SET EX NX",
    };

    async fn connect(client: Client) -> Result<Self> {
        Ok(Self {
            redis: connect(client.ports[0]).await?,
            dies_between: client.who == 'A',
        })
    }

    async fn acquire(&mut self) -> Valid {
        let (redis, millis) = (&mut self.redis, TTL.as_millis() as i64);
        let acquired = match SCHEME {
            1 => {
                let acquired: bool = redis.set_nx(KEY, "locked").await?;
                if self.dies_between {
                    return Ok(acquired.then_some(FOREVER));
                }
                acquired && redis.expire(KEY, TTL.as_secs() as i64).await?
            }
            2 => {
                let mut transaction = redis::pipe();
                transaction.atomic().set_nx(KEY, "locked");
                transaction.pexpire(KEY, millis).ignore();
                let (acquired,) = transaction.query_async(redis).await?;
                acquired
            }
            4 => {
                let script = Script::new(
                    "if redis.call('SETNX', KEYS[1], 'locked') == 0 then return 0 end
                     return redis.call('PEXPIRE', KEYS[1], ARGV[1])",
                );
                script.key(KEY).arg(millis).invoke_async(redis).await?
            }
            _ => {
                let options = SetOptions::default()
                    .conditional_set(ExistenceCheck::NX)
                    .with_expiration(SetExpiry::EX(TTL.as_secs()));
                redis.set_options(KEY, "locked", options).await?
            }
        };
        Ok(acquired.then_some(TTL))
    }

    async fn release(&mut self) -> Result<bool> {
        Ok(self.redis.del(KEY).await?)
    }
}
