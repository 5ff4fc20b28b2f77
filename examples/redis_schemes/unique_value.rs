//! 5: `SET key value PX milliseconds NX` with a value of its own, and a release that compares it.
//!
//! Nobody deletes the lock of another any more. That the own one is over, nobody says.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, ExistenceCheck, Script as Lua, SetExpiry, SetOptions};
use tokio::time::sleep;

use crate::invariant::Invariant;
use crate::report::Report;
use crate::scene::{Scene, Script};
use crate::stage::{Result, connect, server, work};

pub(crate) async fn work_outlives_the_lock() -> Result<Report> {
    let server = server();
    let mut a = Lock::new(connect(server.port()).await?, "a-9f3c");
    let mut b = Lock::new(connect(server.port()).await?, "b-71d0");
    let scene = Scene::begin(Script {
        rung: "5",
        scheme: "SET PX NX, unique value",
        how: "the same, and a script deletes it if the value is the own one",
        provocation: "work outlives the lock",
        breaks: &[
            Invariant::MutualExclusion,
            Invariant::LossSignal,
            Invariant::Fencing,
        ],
    });

    if a.acquire(TTL).await? {
        scene.enters("A", format!("for {TTL} ms, and has more work than that"));
    }
    while !b.acquire(TTL).await? {
        sleep(Duration::from_millis(10)).await;
    }
    scene.enters("B", "the lock of A has expired");
    scene.writes("B", None);
    work().await;
    scene.writes("A", None);
    scene.leaves("A");
    scene.releases("A", a.release().await?);
    scene.leaves("B");
    scene.releases("B", b.release().await?);
    Ok(scene.report())
}

/// The lock on one server; the quorum takes several of them.
pub(crate) struct Lock {
    redis: MultiplexedConnection,
    value: &'static str,
}

impl Lock {
    pub(crate) fn new(redis: MultiplexedConnection, value: &'static str) -> Self {
        Self { redis, value }
    }

    /// For so many milliseconds.
    pub(crate) async fn acquire(&mut self, ttl: u64) -> Result<bool> {
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::PX(ttl));
        let answer: Option<String> = self.redis.set_options(KEY, self.value, options).await?;
        Ok(answer.is_some())
    }

    pub(crate) async fn release(&mut self) -> Result<bool> {
        let lua = Lua::new(
            "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
             return redis.call('DEL', KEYS[1])",
        );
        Ok(lua
            .key(KEY)
            .arg(self.value)
            .invoke_async(&mut self.redis)
            .await?)
    }
}

const KEY: &str = "lock:orders";
/// Milliseconds.
const TTL: u64 = 300;
