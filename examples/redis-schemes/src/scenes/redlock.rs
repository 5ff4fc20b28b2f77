//! 8 and 9: the lock of scheme 6 on several independent masters. MultiLock acquires it on all of them:
//! none can forget a lock alone, and the first that dies locks everybody out. Redlock acquires a
//! majority: one of three may die. A node that forgets makes a second majority, and no number of
//! nodes stops a holder that was paused from writing when it wakes.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::timeout;

use super::unique_value;
use crate::provocations::connect;
use crate::stage::{self, Client, Valid};

/// A lock on three masters, of which so many must grant it.
pub(crate) struct Masters<const NEEDED: usize> {
    client: Client,
}

pub(crate) type MultiLock = Masters<3>;
pub(crate) type Redlock = Masters<2>;

impl<const NEEDED: usize> Masters<NEEDED> {
    async fn lock(&self, port: u16) -> Result<unique_value::Lock> {
        let (redis, value) = (connect(port).await?, self.client.who.to_string());
        let ttl = self.ttl();
        Ok(unique_value::Lock { redis, value, ttl })
    }

    /// Others have time for a restart of servers.
    fn ttl(&self) -> Duration {
        Duration::from_secs(if self.client.renews { 20 } else { 2 })
    }
}

impl<const NEEDED: usize> stage::Lock for Masters<NEEDED> {
    const SCHEME: &str = match NEEDED {
        3 => "8  all masters (MultiLock)",
        _ => "9  a majority (Redlock)",
    };
    const SERVERS: usize = 3;

    async fn connect(client: Client) -> Result<Self> {
        Ok(Self { client })
    }

    /// Asks one node after the other, which is short to read; asking all at once leaves more of the
    /// time.
    async fn acquire(&mut self) -> Valid {
        let (start, mut granted) = (Instant::now(), 0);
        for port in &self.client.ports {
            let answer = async { self.lock(*port).await?.acquire().await };
            let answer = timeout(NODE_TIMEOUT, answer).await;
            granted += usize::from(matches!(answer, Ok(Ok(Some(_)))));
        }
        let drift = self.ttl() / 100 + Duration::from_millis(2);
        let valid = self.ttl().checked_sub(start.elapsed() + drift);
        if granted >= NEEDED && valid.is_some() {
            return Ok(valid);
        }
        self.release().await?;
        Ok(None)
    }

    /// Whether one of the nodes has removed a lock; the others forget it at the end of its TTL.
    async fn release(&mut self) -> Result<bool> {
        let mut removed = false;
        for port in &self.client.ports {
            let answer = async { self.lock(*port).await?.release().await };
            let answer = timeout(NODE_TIMEOUT, answer).await;
            removed |= matches!(answer, Ok(Ok(true)));
        }
        Ok(removed)
    }
}

/// Of a busy machine; a node that is down refuses at once.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);
