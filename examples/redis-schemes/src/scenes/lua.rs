//! 4: `SETNX` and `PEXPIRE` in one script. Neither crashes nor clocks do harm, and `PEXPIRE` depends
//! on `SETNX`. A release deletes whatever lock there is.

use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, Script};

use crate::provocations::{self, clients};
use crate::stage::{self, Fault, Report, Scene};

pub(crate) async fn late_release() -> Result<Report> {
    let (_server, redis) = clients().await?;
    let scene = Scene::begin("4  SETNX PEXPIRE in Lua", "release is late");
    let expected = [Fault::Exclusion, Fault::Fencing, Fault::Ownership];
    provocations::late_release(scene, redis.map(Lock), &expected).await
}

struct Lock(MultiplexedConnection);

impl stage::Lock for Lock {
    async fn acquire(&mut self) -> Result<Option<Duration>> {
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

const KEY: &str = "lock:orders";
const TTL: Duration = Duration::from_secs(1);
