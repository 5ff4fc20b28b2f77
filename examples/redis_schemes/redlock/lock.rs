use std::time::{Duration, Instant};

use tokio::time::timeout;

use lock_testkit::servers::RedisServer;

use crate::stage::{Result, connect};
use crate::unique_value;

pub(super) struct Lock {
    ports: Vec<u16>,
    value: &'static str,
}

impl Lock {
    pub(super) fn on(nodes: &[RedisServer], value: &'static str) -> Self {
        let ports = nodes.iter().map(|node| node.port()).collect();
        Self { ports, value }
    }

    /// Takes a majority, and says for how long it is valid; else nothing. Asks one node after the
    /// other, which is short to read; asking all at once leaves more of the time.
    pub(super) async fn acquire(&self, ttl: Duration) -> Result<Option<Duration>> {
        let begun = Instant::now();
        let millis = u64::try_from(ttl.as_millis())?;
        let mut taken = 0;
        for port in &self.ports {
            let answer = timeout(PATIENCE, self.acquire_on(*port, millis)).await;
            taken += usize::from(matches!(answer, Ok(Ok(true))));
        }
        let drift = ttl / 100 + Duration::from_millis(2);
        let valid = ttl.checked_sub(begun.elapsed() + drift);
        if taken > self.ports.len() / 2 && valid.is_some() {
            return Ok(valid);
        }
        self.release().await;
        Ok(None)
    }

    pub(super) async fn release(&self) {
        for port in &self.ports {
            // A node that does not answer forgets the lock at the end of its time.
            drop(timeout(PATIENCE, self.release_on(*port)).await);
        }
    }

    async fn acquire_on(&self, port: u16, ttl: u64) -> Result<bool> {
        let mut node = unique_value::Lock::new(connect(port).await?, self.value);
        node.acquire(ttl).await
    }

    async fn release_on(&self, port: u16) -> Result<bool> {
        let mut node = unique_value::Lock::new(connect(port).await?, self.value);
        node.release().await
    }
}

/// What a node gets, much less than a lock lasts.
const PATIENCE: Duration = Duration::from_millis(300);
