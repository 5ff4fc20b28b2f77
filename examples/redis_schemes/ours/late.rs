use lock_core::prelude::*;

use super::{KEY, PATIENCE, TTL, connect, script, token};
use crate::report::Report;
use crate::scene::Scene;
use crate::stage::{Result, server};

/// As 3 and 4: a release names the lease that it ends, and no other.
pub(crate) async fn release_is_late() -> Result<Report> {
    let server = server();
    let (a, b) = (connect(server.port()).await?, connect(server.port()).await?);
    let c = connect(server.port()).await?;
    let scene = Scene::begin(script("release is late"));

    let late = a.request(KEY).ttl(TTL).manual_renewal().acquire().await?;
    scene.enters("A", "for 1 s, without renewal");
    scene.writes("A", token(&late));
    scene.leaves("A");
    let guard = b.lock_within(KEY, PATIENCE).await?;
    scene.enters("B", "the lease of A has ended");
    scene.notes("A", "its release arrives");
    let released = late.release().await?;
    scene.releases("A", released == Released::Clean);
    match c.try_lock(KEY).await? {
        Some(_) => scene.enters("C", "the lock is free"),
        None => scene.notes("C", "is refused: B has the lock"),
    }
    scene.writes("B", token(&guard));
    scene.leaves("B");
    guard.release().await?;
    Ok(scene.report())
}
