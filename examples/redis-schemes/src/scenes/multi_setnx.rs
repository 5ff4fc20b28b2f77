//! 2: `MULTI`, `SETNX`, `PEXPIRE`, `EXEC`. The transaction runs as a whole, and that is the fault:
//! `PEXPIRE` does not depend on `SETNX`, so each loser extends the lock that it did not get. A dead
//! holder's lock lasts for as long as anybody wants it.

use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};

use crate::stage::{Fault, IN_VAIN, KEY, Report, Scene, connect, server};

pub(crate) async fn crash() -> Result<Report> {
    let server = server();
    let (mut a, mut b) = (
        Lock(connect(server.port()).await?),
        Lock(connect(server.port()).await?),
    );
    let mut scene = Scene::begin("2  MULTI SETNX PEXPIRE", "crash, and a waiter");
    scene.asks('A');
    if a.acquire().await? {
        scene.enters('A', Some(TTL));
    }
    scene.note("A dies, and its lock should end by itself");
    drop(a);

    scene.asks('B');
    let (deadline, mut attempts) = (Instant::now() + IN_VAIN, 0);
    while Instant::now() < deadline {
        if b.acquire().await? {
            scene.enters('B', Some(TTL));
            return scene.judge(&[Fault::Liveness]);
        }
        attempts += 1;
        sleep(TTL / 10).await;
    }
    scene.gives_up(
        'B',
        &format!("{attempts} attempts, each has extended the lock"),
    );
    scene.judge(&[Fault::Liveness])
}

struct Lock(MultiplexedConnection);

impl Lock {
    async fn acquire(&mut self) -> Result<bool> {
        let mut transaction = redis::pipe();
        transaction
            .atomic()
            .set_nx(KEY, "locked")
            .pexpire(KEY, TTL.as_millis() as i64)
            .ignore();
        let (acquired,): (bool,) = transaction.query_async(&mut self.0).await?;
        Ok(acquired)
    }
}

const TTL: Duration = Duration::from_secs(1);
