//! 9: Redlock, the lock of scheme 6 on a majority of independent masters. One of three may die. A
//! node that forgets makes a second majority, and no number of nodes stops a holder that was paused
//! from writing when it wakes.

use std::time::{Duration, Instant};

use anyhow::Result;
use lock_testkit::servers::RedisServer;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use super::unique_value;
use crate::stage::{Fault, Report, Scene, connect, nodes};

const SCHEME: &str = "9  a majority (Redlock)";

pub(crate) async fn master_dies() -> Result<Report> {
    let nodes = nodes();
    let [a, b] = ["a", "b"].map(|value| Masters::majority(&nodes, value));
    let mut scene = Scene::begin(SCHEME, "a master dies");
    a.lock(&mut scene, 'A', TTL).await?;
    scene.writes('A');
    scene.releases('A', a.release().await);
    block_in_place(|| nodes[2].kill());
    scene.note("one of three masters dies");
    b.lock(&mut scene, 'B', TTL).await?;
    scene.writes('B');
    scene.releases('B', b.release().await);
    scene.judge(&[])
}

pub(crate) async fn holder_is_paused() -> Result<Report> {
    let nodes = nodes();
    let [a, b] = ["a", "b"].map(|value| Masters::majority(&nodes, value));
    let mut scene = Scene::begin(SCHEME, "holder is paused");
    a.lock(&mut scene, 'A', TTL).await?;
    scene.note("A sees that it has time left, begins to write, and is paused");
    b.lock(&mut scene, 'B', TTL).await?;
    scene.writes('B');
    scene.note("A wakes and continues its write");
    scene.late_write('A', None);
    scene.judge(&[Fault::Fencing])
}

pub(crate) async fn node_restarts_empty() -> Result<Report> {
    let nodes = nodes();
    let [a, b] = ["a", "b"].map(|value| Masters::majority(&nodes, value));
    let mut scene = Scene::begin(SCHEME, "node restarts empty");
    block_in_place(|| nodes[2].kill());
    scene.note("node 3 is down");
    a.lock(&mut scene, 'A', LONG).await?;
    block_in_place(|| nodes[1].restart());
    block_in_place(|| nodes[2].restart());
    scene.note("node 2 restarts and has forgotten everything, node 3 is up");
    b.lock(&mut scene, 'B', LONG).await?;
    scene.writes('B');
    scene.writes('A');
    scene.judge(&[Fault::Exclusion, Fault::Fencing])
}

/// Independent masters, of which some number must grant the lock.
pub(crate) struct Masters {
    ports: Vec<u16>,
    needed: usize,
    value: &'static str,
}

impl Masters {
    pub(crate) fn all(nodes: &[RedisServer], value: &'static str) -> Self {
        let ports = nodes.iter().map(|node| node.port()).collect();
        Self {
            ports,
            needed: nodes.len(),
            value,
        }
    }

    fn majority(nodes: &[RedisServer], value: &'static str) -> Self {
        Self {
            needed: nodes.len() / 2 + 1,
            ..Self::all(nodes, value)
        }
    }

    /// Tries until the lock is granted.
    pub(crate) async fn lock(&self, scene: &mut Scene, who: char, ttl: Duration) -> Result<()> {
        loop {
            scene.asks(who);
            if let Some(valid) = self.acquire(ttl).await? {
                scene.enters(who, Some(valid));
                return Ok(());
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns for how long the lock is valid. Asks one node after the other, which is short to
    /// read; asking all at once leaves more of the time.
    pub(crate) async fn acquire(&self, ttl: Duration) -> Result<Option<Duration>> {
        let (start, mut granted) = (Instant::now(), 0);
        for port in &self.ports {
            let answer = timeout(NODE_TIMEOUT, async {
                unique_value::Lock::new(connect(*port).await?, self.value)
                    .acquire(ttl)
                    .await
            });
            granted += usize::from(matches!(answer.await, Ok(Ok(true))));
        }
        let drift = ttl / 100 + Duration::from_millis(2);
        let valid = ttl.checked_sub(start.elapsed() + drift);
        if granted >= self.needed && valid.is_some() {
            return Ok(valid);
        }
        self.release().await;
        Ok(None)
    }

    /// Whether one of the nodes has removed a lock; the others forget it at the end of its TTL.
    pub(crate) async fn release(&self) -> bool {
        let mut removed = false;
        for port in &self.ports {
            let answer = timeout(NODE_TIMEOUT, async {
                unique_value::Lock::new(connect(*port).await?, self.value)
                    .release()
                    .await
            });
            removed |= matches!(answer.await, Ok(Ok(true)));
        }
        removed
    }
}

/// Much less than a lock lasts.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
const TTL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(20);
