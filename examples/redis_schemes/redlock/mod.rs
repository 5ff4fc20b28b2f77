//! 7: Redlock, the lock of rung 5 on a majority of independent servers.
//!
//! One server may fail. A node that forgets makes a second majority, and no number of servers stops
//! a holder that was paused from writing when it wakes up.

mod lock;

use std::time::{Duration, Instant};

use tokio::task::block_in_place;
use tokio::time::sleep;

use lock_testkit::servers::{RedisNodes, RedisOptions};

use crate::invariant::Invariant;
use crate::report::Report;
use crate::scene::{Scene, Script};
use crate::stage::{Result, work};

use self::lock::Lock;

pub(crate) async fn pause() -> Result<Report> {
    let nodes = nodes();
    let (a, b) = (Lock::on(&nodes, "a"), Lock::on(&nodes, "b"));
    let scene = Scene::begin(Script {
        rung: "7",
        scheme: "quorum (Redlock)",
        how: HOW,
        provocation: "holder is paused",
        breaks: &[Invariant::Fencing],
    });

    let ttl = Duration::from_secs(1);
    let valid = a
        .acquire(ttl)
        .await?
        .ok_or("three free nodes are a majority")?;
    let until = Instant::now() + valid;
    scene.enters(
        "A",
        format!("3 of 3 nodes, valid for {} ms", valid.as_millis()),
    );
    scene.notes(
        "A",
        "sees that it has time left, begins to write, and is paused",
    );
    scene.is_told_at(
        until,
        "A",
        "by its own clock, to which a paused process does not look",
    );
    while b.acquire(ttl).await?.is_none() {
        sleep(Duration::from_millis(10)).await;
    }
    scene.enters("B", "the lock of A has expired");
    scene.writes("B", None);
    scene.notes("A", "wakes up and goes on with its write");
    scene.writes("A", None);
    scene.leaves("B");
    b.release().await;
    Ok(scene.report())
}

pub(crate) async fn node_forgets() -> Result<Report> {
    let nodes = nodes();
    let (a, b) = (Lock::on(&nodes, "a"), Lock::on(&nodes, "b"));
    let scene = Scene::begin(Script {
        rung: "7",
        scheme: "quorum (Redlock)",
        how: HOW,
        provocation: "node restarts empty",
        breaks: &[
            Invariant::MutualExclusion,
            Invariant::LossSignal,
            Invariant::Fencing,
        ],
    });

    let ttl = Duration::from_secs(10);
    block_in_place(|| nodes[2].kill());
    scene.notes("-", "node 3 is down");
    let valid = a
        .acquire(ttl)
        .await?
        .ok_or("two free nodes of three are a majority")?;
    scene.enters(
        "A",
        format!("nodes 1 and 2, valid for {} ms", valid.as_millis()),
    );
    block_in_place(|| nodes[1].restart());
    block_in_place(|| nodes[2].restart());
    scene.notes(
        "-",
        "node 2 restarts and has forgotten everything, node 3 is up",
    );
    if b.acquire(ttl).await?.is_some() {
        scene.enters("B", "nodes 2 and 3: a majority as well");
    }
    scene.writes("B", None);
    work().await;
    scene.writes("A", None);
    scene.leaves("A");
    scene.leaves("B");
    a.release().await;
    b.release().await;
    Ok(scene.report())
}

fn nodes() -> RedisNodes {
    block_in_place(|| RedisNodes::start(3, &RedisOptions::new()))
}

const HOW: &str = "scheme 5 on a majority of independent servers, within a time";
