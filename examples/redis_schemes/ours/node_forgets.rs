use tokio::task::block_in_place;

use lock_core::prelude::*;
use lock_redis::{RedisConfig, Redlock};
use lock_testkit::servers::{RedisNodes, RedisOptions, RedisServer};

use super::{KEY, PATIENCE, TTL, script, token};
use crate::report::Report;
use crate::scene::Scene;
use crate::stage::Result;

/// As 7: a node that has restarted does not vote until all that it may have forgotten is over.
pub(crate) async fn node_forgets() -> Result<Report> {
    let nodes = block_in_place(|| RedisNodes::start(3, &RedisOptions::new()));
    let (a, b) = (connect(&nodes).await?, connect(&nodes).await?);
    let scene = Scene::begin(script("node restarts empty"));

    block_in_place(|| nodes[2].kill());
    scene.notes(
        "-",
        "node 3 is down; those that have just been started do not vote yet",
    );
    let wait = Wait::AtMost(PATIENCE);
    let guard = a.request(KEY).ttl(TTL).wait(wait).acquire().await?;
    scene.enters("A", "nodes 1 and 2, renewed");
    scene.writes("A", token(&guard));
    block_in_place(|| nodes[1].restart());
    block_in_place(|| nodes[2].restart());
    scene.notes(
        "-",
        "node 2 restarts and has forgotten everything, node 3 is up",
    );
    let next = b.request(KEY).ttl(TTL).wait(wait);
    let ((), next) = tokio::join!(
        async {
            let reason = guard.lost().await;
            scene.is_told("A", reason.to_string());
        },
        async {
            let next = next.acquire().await?;
            scene.enters("B", "nodes 2 and 3, which have waited for leases to end");
            Ok::<_, Error>(next)
        }
    );
    let next = next?;
    scene.writes("B", token(&next));
    scene.notes("A", "a write that was on its way arrives");
    scene.writes("A", token(&guard));
    scene.leaves("B");
    next.release().await?;
    Ok(scene.report())
}

async fn connect(nodes: &[RedisServer]) -> Result<Redlock> {
    let masters = nodes.iter().map(|node| ("127.0.0.1", node.port()));
    // No lease of this scene is longer.
    let config = RedisConfig::quorum(masters).with_rejoin_delay(TTL)?;
    Ok(Redlock::connect(config).await?)
}
