//! 1: `SETNX`, then `EXPIRE`. A client that dies between the two leaves a lock without an end.

use std::time::Duration;

use anyhow::Result;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};

use crate::stage::{Fault, IN_VAIN, KEY, Report, Scene, connect, server};

pub(crate) async fn crash() -> Result<Report> {
    let server = server();
    let (mut a, mut b) = (
        Lock(connect(server.port()).await?),
        Lock(connect(server.port()).await?),
    );
    let mut scene = Scene::begin("1  SETNX, then EXPIRE", "crash between the two");
    scene.asks('A');
    a.set().await?;
    scene.enters('A', None);
    scene.note("A dies before EXPIRE");
    drop(a);

    scene.asks('B');
    let deadline = Instant::now() + IN_VAIN;
    while Instant::now() < deadline {
        if b.acquire().await? {
            scene.enters('B', Some(TTL));
            return scene.judge(&[Fault::Liveness]);
        }
        sleep(Duration::from_millis(100)).await;
    }
    scene.gives_up('B', "the lock has no end");
    scene.judge(&[Fault::Liveness])
}

struct Lock(MultiplexedConnection);

impl Lock {
    async fn acquire(&mut self) -> Result<bool> {
        Ok(self.set().await? && self.0.expire(KEY, TTL.as_secs() as i64).await?)
    }

    async fn set(&mut self) -> Result<bool> {
        Ok(self.0.set_nx(KEY, "locked").await?)
    }
}

const TTL: Duration = Duration::from_secs(1);
