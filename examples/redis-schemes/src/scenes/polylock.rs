//! 10: polylock. One step acquires the lock and gives it an end. That end follows the clock of the server: no
//! waiter moves it, and no client compares it with its own clock. A release names the lease that it ends. A
//! lease is renewed for as long as its guard lives.
//!
//! A lock that the server forgets is lost here too: its holder is notified, and what it still writes is
//! refused, because the token of the next holder is larger. A quorum stays available when a master dies, and
//! a node that has restarted does not vote until every lease that it may have forgotten has ended.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use lock_testkit::proxy::{Direction, Proxy};
use polylock::engine::{BootClock, Clock, Engine, Moment, OnRuntime, OsEntropy};
use polylock::prelude::*;
use polylock::redis::{Redis, RedisConfig};
use tokio::task::block_in_place;

use crate::provocations::{clients, taken_over};
use crate::stage::{Client, Lock, Scene, TTL, Valid};

/// Leases end by the clock of the server, which no client compares with its own.
pub(crate) async fn clocks_differ() -> Result<Scene> {
    let (servers, []) = clients::<Polylock, 0>(1, true).await?;
    let (clock, spawner) = (Arc::new(Ahead), Arc::new(OnRuntime::current()));
    let ahead = Engine::with("redis", clock, Arc::new(OsEntropy::default()), spawner);
    let config = RedisConfig::new("127.0.0.1", servers[0].port());
    let mut a = Polylock::of(Arc::new(Redis::connect(config.clone()).await?));
    let config = config.with_engine(ahead);
    let mut b = Polylock::of(Arc::new(Redis::connect(config).await?));
    let mut scene = Scene::begin::<Polylock>("clocks differ");
    scene.enter('A', &mut a).await?;
    if !scene.try_enter('B', &mut b).await? {
        scene.note("the clock of B is a minute ahead, and B is refused");
    }
    scene.writes('A', &a);
    scene.release('A', &mut a, true).await?;
    scene.judge(&[])
}

#[derive(Debug)]
struct Ahead;

impl Clock for Ahead {
    fn now(&self) -> Moment {
        BootClock::default().now() + Duration::from_secs(60)
    }
}

/// Renewals do not arrive: the guard knows by itself until when it is valid.
pub(crate) async fn cut_off() -> Result<Scene> {
    let (servers, [mut b]) = clients::<Polylock, 1>(1, true).await?;
    let network = block_in_place(|| Proxy::start(servers[0].port()));
    let mut a = Polylock::connect(Client::of('A', network.port())).await?;
    let mut scene = Scene::begin::<Polylock>("renewal fails");
    scene.enter('A', &mut a).await?;
    network.hold(Direction::Requests);
    scene.note("the network between A and the server breaks");
    taken_over(&mut scene, &mut a, &mut b).await?;
    scene.judge(&[])
}

pub(crate) struct Polylock {
    locks: Arc<dyn DistributedLock>,
    renews: bool,
    guard: Option<LockGuard>,
}

impl Polylock {
    fn of(locks: Arc<dyn DistributedLock>) -> Self {
        Self {
            locks,
            renews: true,
            guard: None,
        }
    }
}

impl Lock for Polylock {
    const SCHEME: &str = "10 polylock";

    async fn connect(client: Client) -> Result<Self> {
        let addresses = client.ports.iter().map(|port| format!("127.0.0.1:{port}"));
        let addresses = addresses.collect::<Vec<_>>().join(",");
        let url = match client.ports.len() {
            1 => format!("redis://{addresses}"),
            // No lease of these scenes is longer.
            _ => format!("redlock://{addresses}?rejoin-delay=1s"),
        };
        let lock = Self::of(polylock::connect(&url).await?);
        let renews = client.renews;
        Ok(Self { renews, ..lock })
    }

    async fn acquire(&mut self) -> Valid {
        let mut request = self.locks.request("orders").ttl(TTL);
        if !self.renews {
            request = request.manual_renewal();
        }
        match request.try_acquire().await {
            Ok(guard) => self.guard = guard,
            // Of a quorum, until the nodes that have restarted vote again.
            Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        Ok(self.guard.as_ref().map(|_| TTL))
    }

    async fn release(&mut self) -> Result<bool> {
        match self.guard.take() {
            Some(guard) => Ok(guard.release().await? == Released::Clean),
            None => Ok(false),
        }
    }

    fn die(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.abandon();
        }
    }

    async fn notified(&mut self) -> Option<String> {
        Some(self.guard.as_ref()?.lost().await.to_string())
    }

    fn guard(&self) -> Option<&LockGuard> {
        self.guard.as_ref()
    }
}
