use std::time::Duration;

use lock_core::prelude::*;
use lock_redis::Redis;

use super::{KEY, PATIENCE, TTL, config, connect, script, token};
use crate::report::Report;
use crate::scene::Scene;
use crate::stage::{Pair, Result};

/// As 6, when the server forgets: the holder is told, and its token is smaller.
pub(crate) async fn fail_over() -> Result<Report> {
    let pair = Pair::start().await?;
    let (a, b) = (connect(pair.port()).await?, connect(pair.port()).await?);
    let scene = Scene::begin(script("fail-over"));

    pair.part();
    scene.notes("-", "the network between master and replica breaks");
    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters("A", "the master says so; the replica does not know");
    scene.writes("A", token(&guard));
    let lost = guard.lost();
    let (told, entered) = tokio::join!(
        async {
            let reason = lost.await;
            scene.is_told("A", reason.to_string());
        },
        async {
            pair.fail_over()?;
            scene.notes("-", "the master dies, the replica takes its place");
            let next = b.lock_within(KEY, PATIENCE).await?;
            scene.enters("B", "this master knows of no lock");
            scene.writes("B", token(&next));
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(next)
        }
    );
    let ((), next) = (told, entered?);
    scene.notes("A", "a write that was on its way arrives");
    scene.writes("A", token(&guard));
    scene.leaves("B");
    next.release().await?;
    Ok(scene.report())
}

/// The same for who asks that a replica knows of the lock before it counts: nobody is let in.
pub(crate) async fn fail_over_with_acks() -> Result<Report> {
    let pair = Pair::start().await?;
    let careful = config(pair.port()).with_replica_acks(1, Duration::from_millis(100))?;
    let (a, b) = (Redis::connect(careful).await?, connect(pair.port()).await?);
    let scene = Scene::begin(script("fail-over, replica asked"));

    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters("A", "master and replica say so");
    scene.writes("A", token(&guard));
    scene.leaves("A");
    guard.release().await?;
    pair.part();
    scene.notes("-", "the network between master and replica breaks");
    match a.request(KEY).ttl(TTL).try_acquire().await {
        Ok(Some(_)) => scene.enters("A", "the master says so"),
        Ok(None) => scene.notes("A", "is refused: the lock is held"),
        Err(error) => scene.notes("A", format!("refused: {error}")),
    }
    pair.fail_over()?;
    scene.notes("-", "the master dies, the replica takes its place");
    let next = b.lock_within(KEY, PATIENCE).await?;
    scene.enters("B", "nobody was let in before");
    scene.writes("B", token(&next));
    scene.leaves("B");
    next.release().await?;
    Ok(scene.report())
}
