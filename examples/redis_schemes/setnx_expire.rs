//! 1: `SETNX`, and then `EXPIRE`.
//!
//! Between the two commands a client can die, and then the lock has no end.

use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::invariant::Invariant;
use crate::report::Report;
use crate::scene::{Scene, Script};
use crate::stage::{Result, connect, look, server};

pub(crate) async fn crash_between() -> Result<Report> {
    let server = server();
    let mut a = Lock(connect(server.port()).await?);
    let mut b = Lock(connect(server.port()).await?);
    let scene = Scene::begin(Script {
        rung: "1",
        scheme: "SETNX, then EXPIRE",
        how: "SETNX takes it, EXPIRE gives it an end, DEL releases it",
        provocation: "crash between the two",
        breaks: &[Invariant::Liveness],
    });

    a.take().await?;
    scene.notes("A", format!("SETNX: taken; is about to EXPIRE in {TTL} s"));
    drop(a);
    scene.dies("A");

    let mut attempts = 0;
    for _ in 0..15 {
        sleep(Duration::from_millis(100)).await;
        attempts += 1;
        if b.acquire().await? {
            scene.enters("B", "SETNX, EXPIRE");
            return Ok(scene.report());
        }
    }
    let left = look(&server, &["TTL", KEY])?;
    let forever = if left == "-1" { "-1, never" } else { &left };
    scene.is_stuck(
        "B",
        format!("{attempts} attempts refused; TTL says {forever}"),
    );
    Ok(scene.report())
}

struct Lock(MultiplexedConnection);

impl Lock {
    async fn acquire(&mut self) -> Result<bool> {
        let taken = self.take().await?;
        if taken {
            self.bound().await?;
        }
        Ok(taken)
    }

    async fn take(&mut self) -> Result<bool> {
        Ok(self.0.set_nx(KEY, "locked").await?)
    }

    async fn bound(&mut self) -> Result<()> {
        Ok(self.0.expire(KEY, TTL).await?)
    }
}

const KEY: &str = "lock:orders";
/// Seconds.
const TTL: i64 = 1;
