//! 5: `SET key value EX seconds NX`. One command instead of a script, and no safer: work that
//! outlives the lock goes on beside the next holder and ends with the deletion of its lock.

use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, ExistenceCheck, SetExpiry, SetOptions};
use tokio::time::sleep;

use crate::stage::{Fault, KEY, Report, Scene, connect, server};

pub(crate) async fn work_outlives_lock() -> Result<Report> {
    let server = server();
    let mut a = Lock(connect(server.port()).await?);
    let mut b = Lock(connect(server.port()).await?);
    let mut c = Lock(connect(server.port()).await?);
    let mut scene = Scene::begin("5  SET EX NX", "work outlives the lock");
    scene.asks('A');
    if a.acquire().await? {
        scene.enters('A', Some(TTL));
    }
    while !b.acquire().await? {
        sleep(Duration::from_millis(10)).await;
    }
    scene.asks('B');
    scene.enters('B', Some(TTL));
    scene.writes('B');
    scene.writes('A');
    scene.releases('A', a.release().await?);
    scene.asks('C');
    if c.acquire().await? {
        scene.enters('C', Some(TTL));
    }
    scene.writes('C');
    scene.judge(&[Fault::Exclusion, Fault::Ownership, Fault::Fencing])
}

struct Lock(MultiplexedConnection);

impl Lock {
    async fn acquire(&mut self) -> Result<bool> {
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::EX(TTL.as_secs()));
        let answer: Option<String> = self.0.set_options(KEY, "locked", options).await?;
        Ok(answer.is_some())
    }

    async fn release(&mut self) -> Result<bool> {
        Ok(self.0.del(KEY).await?)
    }
}

const TTL: Duration = Duration::from_secs(1);
