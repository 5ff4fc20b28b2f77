//! 10: polylock. One step acquires the lock and gives it an end by the clock of the server, which no waiter
//! moves and no client compares with its own; a release names the lease that it ends; a lease is renewed for as long as its guard lives. A lock that the
//! server forgets is lost here too: its holder is notified, and what it still writes is refused,
//! because the token of the next holder is larger. A quorum stays available when a master dies, and a
//! node that has restarted does not vote until every lease that it may have forgotten has ended.

use std::sync::Arc;

use anyhow::Result;
use lock_testkit::proxy::{Direction, Proxy};
use polylock::prelude::*;
use tokio::task::block_in_place;

use crate::provocations::{clients, taken_over};
use crate::stage::{Client, Lock, Scene, TTL, Valid};

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
        Ok(Self {
            locks: polylock::connect(&url).await?,
            renews: client.renews,
            guard: None,
        })
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
