use std::sync::Arc;
use std::time::Duration;

use lock_core::engine::{BootClock, Clock, Engine, Moment, OnRuntime, OsEntropy};
use lock_core::prelude::*;
use lock_redis::Redis;

use super::{KEY, PATIENCE, TTL, config, connect, script, token};
use crate::report::Report;
use crate::scene::Scene;
use crate::stage::{Result, server};

/// As 2: leases end by the clock of the server, and no client compares its own with that.
pub(crate) async fn clocks_differ() -> Result<Report> {
    let server = server();
    let a = connect(server.port()).await?;
    let b = Redis::connect(config(server.port()).with_engine(ahead())).await?;
    let scene = Scene::begin(script("clocks differ"));

    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters("A", "for 1 s, renewed");
    scene.writes("A", token(&guard));
    scene.notes("B", "has a clock 60 s ahead");
    let early = b.try_lock(KEY).await?;
    if early.is_some() {
        scene.enters("B", "took the lock of A");
    } else {
        scene.notes("B", "is refused");
    }
    scene.writes("A", token(&guard));
    scene.leaves("A");
    guard.release().await?;
    if early.is_none() {
        let guard = b.lock_within(KEY, PATIENCE).await?;
        scene.enters("B", "A has left");
        scene.writes("B", token(&guard));
        scene.leaves("B");
        guard.release().await?;
    }
    Ok(scene.report())
}

fn ahead() -> Engine {
    Engine::with(
        "redis",
        Arc::new(Ahead),
        Arc::new(OsEntropy::default()),
        Arc::new(OnRuntime::current()),
    )
}

#[derive(Debug)]
struct Ahead;

impl Clock for Ahead {
    fn now(&self) -> Moment {
        BootClock::default().now() + Duration::from_secs(60)
    }
}
