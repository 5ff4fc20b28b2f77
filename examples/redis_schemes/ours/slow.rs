use tokio::time::sleep;

use lock_core::prelude::*;

use super::{KEY, PATIENCE, TTL, connect, script, token};
use crate::report::Report;
use crate::scene::Scene;
use crate::stage::{Result, server};

/// As 4 and 5: a lease is renewed for as long as the guard lives.
pub(crate) async fn work_outlives_the_lock() -> Result<Report> {
    let server = server();
    let (a, b) = (connect(server.port()).await?, connect(server.port()).await?);
    let scene = Scene::begin(script("work outlives the lock"));

    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters("A", "for 1 s, renewed, and has more work than that");
    let work = async {
        let working = guard.run(sleep(TTL * 8 / 5)).await;
        match working {
            Ok(()) => {
                scene.writes("A", token(&guard));
                scene.leaves("A");
            }
            Err(lost) => scene.is_told("A", lost.to_string()),
        }
        guard.release().await
    };
    let (released, entered) = tokio::join!(work, async {
        let guard = b.lock_within(KEY, PATIENCE).await?;
        scene.enters("B", "A has left");
        scene.writes("B", token(&guard));
        scene.leaves("B");
        guard.release().await
    });
    released?;
    entered?;
    Ok(scene.report())
}
