//! 3: `SETNX` and `PEXPIRE` in one script.
//!
//! Neither crashes nor clocks matter any more. A release deletes whatever lock there is.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script as Lua};
use tokio::time::sleep;

use crate::invariant::Invariant;
use crate::report::Report;
use crate::scene::{Scene, Script};
use crate::stage::{Result, connect, server, work};

pub(crate) async fn release_is_late() -> Result<Report> {
    let server = server();
    let mut a = Lock(connect(server.port()).await?);
    let mut b = Lock(connect(server.port()).await?);
    let mut c = Lock(connect(server.port()).await?);
    let scene = Scene::begin(Script {
        rung: "3",
        scheme: "SETNX + PEXPIRE in Lua",
        how: "one script takes it and gives it an end, DEL releases it",
        provocation: "release is late",
        breaks: &[
            Invariant::MutualExclusion,
            Invariant::Ownership,
            Invariant::LossSignal,
            Invariant::Fencing,
        ],
    });

    if a.acquire().await? {
        scene.enters("A", format!("for {TTL} ms"));
    }
    scene.writes("A", None);
    scene.leaves("A");
    scene.notes("A", "sends its release into a slow network");
    while !b.acquire().await? {
        sleep(Duration::from_millis(10)).await;
    }
    scene.enters("B", "the lock of A has expired");
    scene.notes("A", "its release arrives");
    scene.releases("A", a.release().await?);
    if c.acquire().await? {
        scene.enters("C", "the lock is free");
    }
    work().await;
    scene.writes("B", None);
    scene.leaves("B");
    scene.writes("C", None);
    scene.leaves("C");
    Ok(scene.report())
}

struct Lock(MultiplexedConnection);

impl Lock {
    async fn acquire(&mut self) -> Result<bool> {
        let lua = Lua::new(
            "if redis.call('SETNX', KEYS[1], 'locked') == 0 then return 0 end
             return redis.call('PEXPIRE', KEYS[1], ARGV[1])",
        );
        Ok(lua.key(KEY).arg(TTL).invoke_async(&mut self.0).await?)
    }

    async fn release(&mut self) -> Result<bool> {
        Ok(self.0.del(KEY).await?)
    }
}

const KEY: &str = "lock:orders";
/// Milliseconds.
const TTL: u64 = 1000;
