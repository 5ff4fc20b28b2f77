//! 4: `SET key value EX seconds NX`.
//!
//! One command instead of a script, and no safer: work that takes longer than the lock lasts goes on
//! beside the next holder, and ends with the deletion of that one's lock.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, ExistenceCheck, SetExpiry, SetOptions};
use tokio::time::sleep;

use crate::invariant::Invariant;
use crate::report::Report;
use crate::scene::{Scene, Script};
use crate::stage::{Result, connect, server, work};

pub(crate) async fn work_outlives_the_lock() -> Result<Report> {
    let server = server();
    let mut a = Lock(connect(server.port()).await?);
    let mut b = Lock(connect(server.port()).await?);
    let mut c = Lock(connect(server.port()).await?);
    let scene = Scene::begin(Script {
        rung: "4",
        scheme: "SET EX NX",
        how: "one command takes it and gives it an end, DEL releases it",
        provocation: "work outlives the lock",
        breaks: &[
            Invariant::MutualExclusion,
            Invariant::Ownership,
            Invariant::LossSignal,
            Invariant::Fencing,
        ],
    });

    if a.acquire().await? {
        scene.enters("A", format!("for {TTL} s, and has more work than that"));
    }
    while !b.acquire().await? {
        sleep(Duration::from_millis(10)).await;
    }
    scene.enters("B", "the lock of A has expired");
    work().await;
    scene.writes("A", None);
    scene.leaves("A");
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
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::EX(TTL));
        let answer: Option<String> = self.0.set_options(KEY, "locked", options).await?;
        Ok(answer.is_some())
    }

    async fn release(&mut self) -> Result<bool> {
        Ok(self.0.del(KEY).await?)
    }
}

const KEY: &str = "lock:orders";
/// Seconds.
const TTL: u64 = 1;
