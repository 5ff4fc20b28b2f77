//! 9: Redlock, the lock of scheme 6 on a majority of independent masters. One of three may die. A
//! node that forgets makes a second majority, and no number of nodes stops a holder that was paused
//! from writing when it wakes.

use std::time::{Duration, Instant};

use anyhow::Result;
use lock_testkit::servers::RedisServer;
use tokio::time::timeout;

use super::unique_value;
use crate::provocations::{self, connect, nodes};
use crate::stage::{self, Fault, Report, Scene};

const SCHEME: &str = "9  a majority (Redlock)";

pub(crate) async fn master_dies() -> Result<Report> {
    let nodes = nodes();
    let scene = Scene::begin(SCHEME, "a master dies");
    provocations::master_dies(scene, &nodes, two(&nodes), &[]).await
}

pub(crate) async fn holder_is_paused() -> Result<Report> {
    let nodes = nodes();
    let scene = Scene::begin(SCHEME, "holder is paused");
    provocations::pause(scene, two(&nodes), &[Fault::Fencing]).await
}

pub(crate) async fn node_restarts_empty() -> Result<Report> {
    let nodes = nodes();
    let scene = Scene::begin(SCHEME, "node restarts empty");
    let ttl = Duration::from_secs(20);
    let locks = two(&nodes).map(|lock| Masters { ttl, ..lock });
    let expected = [Fault::Exclusion, Fault::Fencing];
    provocations::node_restarts_empty(scene, &nodes, locks, &expected).await
}

fn two(nodes: &[RedisServer]) -> [Masters; 2] {
    ["a", "b"].map(|value| Masters::new(nodes, nodes.len() / 2 + 1, value))
}

/// Independent masters, of which some number must grant the lock.
pub(crate) struct Masters {
    ports: Vec<u16>,
    needed: usize,
    value: &'static str,
    ttl: Duration,
}

impl Masters {
    pub(crate) fn new(nodes: &[RedisServer], needed: usize, value: &'static str) -> Self {
        Self {
            ports: nodes.iter().map(|node| node.port()).collect(),
            needed,
            value,
            ttl: Duration::from_secs(2),
        }
    }

    async fn connect(&self, port: u16) -> Result<unique_value::Lock> {
        let (redis, value, ttl) = (connect(port).await?, self.value, self.ttl);
        Ok(unique_value::Lock { redis, value, ttl })
    }
}

impl stage::Lock for Masters {
    /// Asks one node after the other, which is short to read; asking all at once leaves more of the
    /// time.
    async fn acquire(&mut self) -> Result<Option<Duration>> {
        let (start, mut granted) = (Instant::now(), 0);
        for port in &self.ports {
            let answer = async { self.connect(*port).await?.acquire().await };
            let answer = timeout(NODE_TIMEOUT, answer).await;
            granted += usize::from(matches!(answer, Ok(Ok(Some(_)))));
        }
        let drift = self.ttl / 100 + Duration::from_millis(2);
        let valid = self.ttl.checked_sub(start.elapsed() + drift);
        if granted >= self.needed && valid.is_some() {
            return Ok(valid);
        }
        self.release().await?;
        Ok(None)
    }

    /// Whether one of the nodes has removed a lock; the others forget it at the end of its TTL.
    async fn release(&mut self) -> Result<bool> {
        let mut removed = false;
        for port in &self.ports {
            let answer = async { self.connect(*port).await?.release().await };
            let answer = timeout(NODE_TIMEOUT, answer).await;
            removed |= matches!(answer, Ok(Ok(true)));
        }
        Ok(removed)
    }
}

/// Much less than a lock lasts.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
