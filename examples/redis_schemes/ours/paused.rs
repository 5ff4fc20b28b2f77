use lock_core::prelude::*;

use super::{KEY, PATIENCE, TTL, connect, script, token};
use crate::report::Report;
use crate::scene::Scene;
use crate::stage::{Result, server};

/// As 7: who is paused cannot be told; the token stops what it writes.
pub(crate) async fn paused() -> Result<Report> {
    let server = server();
    let (a, b) = (connect(server.port()).await?, connect(server.port()).await?);
    let scene = Scene::begin(script("holder is paused"));

    // A paused process renews nothing.
    let guard = a.request(KEY).ttl(TTL).manual_renewal().acquire().await?;
    let until = guard.valid_until().ok_or("a lease has an end")?;
    scene.enters("A", "for 1 s");
    scene.notes("A", "begins to write, and is paused");
    scene.is_told_at(until.into_std(), "A", "is_held() is false from here on");
    let next = b.lock_within(KEY, PATIENCE).await?;
    scene.enters("B", "the lease of A has ended");
    scene.writes("B", token(&next));
    scene.notes("A", "wakes up and goes on with its write");
    scene.writes("A", token(&guard));
    scene.leaves("B");
    next.release().await?;
    Ok(scene.report())
}
