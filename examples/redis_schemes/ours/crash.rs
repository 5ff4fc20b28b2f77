use lock_core::prelude::*;

use super::{KEY, PATIENCE, TTL, connect, script, token};
use crate::report::Report;
use crate::scene::Scene;
use crate::stage::{Result, server};

/// As 1: taking a lock and giving it an end is one step, so a crash comes before or after it.
pub(crate) async fn crash() -> Result<Report> {
    let server = server();
    let (a, b) = (connect(server.port()).await?, connect(server.port()).await?);
    let scene = Scene::begin(script("crash"));

    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters("A", "for 1 s");
    // Sends nothing any more, as the dead do.
    guard.abandon();
    scene.dies("A");
    match b.lock_within(KEY, PATIENCE).await {
        Ok(guard) => {
            scene.enters("B", "the lease of A has ended");
            scene.writes("B", token(&guard));
            scene.leaves("B");
            guard.release().await?;
        }
        Err(error) => scene.is_stuck("B", error.to_string()),
    }
    Ok(scene.report())
}
