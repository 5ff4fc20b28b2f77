//! 4: `SETNX` and `PEXPIRE` in one script. Neither crashes nor clocks do harm, and `PEXPIRE` depends
//! on `SETNX`. A release deletes whatever lock there is.

use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, Script};
use tokio::time::sleep;

use crate::stage::{Fault, KEY, Report, Scene, connect, server};

pub(crate) async fn late_release() -> Result<Report> {
    let server = server();
    let mut a = Lock(connect(server.port()).await?);
    let mut b = Lock(connect(server.port()).await?);
    let mut c = Lock(connect(server.port()).await?);
    let mut scene = Scene::begin("4  SETNX PEXPIRE in Lua", "release is late");
    scene.asks('A');
    if a.acquire().await? {
        scene.enters('A', Some(TTL));
    }
    scene.writes('A');
    scene.note("A sends its release into a slow network");
    scene.asks('B');
    while !b.acquire().await? {
        sleep(Duration::from_millis(10)).await;
        scene.asks('B');
    }
    scene.enters('B', Some(TTL));
    scene.late_release('A', a.release().await?);
    scene.asks('C');
    if c.acquire().await? {
        scene.enters('C', Some(TTL));
    }
    scene.writes('C');
    scene.writes('B');
    scene.judge(&[Fault::Exclusion, Fault::Ownership, Fault::Fencing])
}

struct Lock(MultiplexedConnection);

impl Lock {
    async fn acquire(&mut self) -> Result<bool> {
        let script = Script::new(
            "if redis.call('SETNX', KEYS[1], 'locked') == 0 then return 0 end
             return redis.call('PEXPIRE', KEYS[1], ARGV[1])",
        );
        let ttl = TTL.as_millis() as u64;
        Ok(script.key(KEY).arg(ttl).invoke_async(&mut self.0).await?)
    }

    async fn release(&mut self) -> Result<bool> {
        Ok(self.0.del(KEY).await?)
    }
}

const TTL: Duration = Duration::from_secs(1);
