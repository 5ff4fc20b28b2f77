//! 10: polylock, under the provocations of the other schemes. A lock that the server forgets is lost
//! here too: its holder is notified, and what it still writes is refused, because the token of the
//! next holder is larger.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{RedisNodes, RedisServer};
use polylock::engine::{BootClock, Clock, Engine, Moment, OnRuntime, OsEntropy};
use polylock::prelude::*;
use polylock::redis::{Redis, RedisConfig};
use tokio::task::block_in_place;

use crate::provocations::{self, Pair, nodes, server, taken_over};
use crate::stage::{self, Report, Scene};

const SCHEME: &str = "10 polylock";

/// As 1 and 2: one step acquires the lock and gives it an end, which no waiter moves.
pub(crate) async fn crash() -> Result<Report> {
    let server = server();
    let scene = Scene::begin(SCHEME, "crash, and a waiter");
    provocations::crash(scene, clients(&server).await?, "it waits in vain", &[]).await
}

/// As 3: leases end by the clock of the server, which no client compares with its own.
pub(crate) async fn clocks_differ() -> Result<Report> {
    let server = server();
    let (clock, spawner) = (Arc::new(Ahead), Arc::new(OnRuntime::current()));
    let ahead = Engine::with("redis", clock, Arc::new(OsEntropy::default()), spawner);
    let config = RedisConfig::new("127.0.0.1", server.port());
    let mut a = Lock::new(Arc::new(Redis::connect(config.clone()).await?));
    let config = config.with_engine(ahead);
    let mut scene = Scene::begin(SCHEME, "clocks differ");
    let mut b = Lock::new(Arc::new(Redis::connect(config).await?)).trying();
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

/// As 4: a release names the lease that it ends.
pub(crate) async fn late_release() -> Result<Report> {
    let server = server();
    let scene = Scene::begin(SCHEME, "release is late");
    let [a, b, c] = clients(&server).await?;
    provocations::late_release(scene, [a.unrenewed(), b, c.trying()], &[]).await
}

/// As 5, 6 and 7: a lease is renewed for as long as its guard lives.
pub(crate) async fn work_outlives_lease() -> Result<Report> {
    let server = server();
    let scene = Scene::begin(SCHEME, "work outlives the lease");
    let [a, b, c] = clients(&server).await?;
    provocations::long_work(scene, [a, b, c.trying()], &[]).await
}

/// As 7, when renewals do not arrive: the guard knows by itself until when it is valid.
pub(crate) async fn cut_off() -> Result<Report> {
    let server = server();
    let network = block_in_place(|| Proxy::start(server.port()));
    let mut a = Lock::new(polylock::connect(&network.url()).await?);
    let [mut b] = clients(&server).await?;
    let mut scene = Scene::begin(SCHEME, "renewal fails");
    scene.enter('A', &mut a).await?;
    network.hold(Direction::Requests);
    scene.note("the network between A and the server breaks");
    taken_over(&mut scene, &mut a, &mut b).await?;
    scene.judge(&[])
}

/// As 7, when the server forgets.
pub(crate) async fn fail_over() -> Result<Report> {
    let pair = Pair::part().await?;
    let [mut a] = clients(&pair.master).await?;
    let mut scene = Scene::begin(SCHEME, "fail-over");
    scene.enter('A', &mut a).await?;
    scene.writes('A', &a);
    pair.fail_over(&mut scene)?;
    let [mut b] = clients(&pair.replica).await?;
    taken_over(&mut scene, &mut a, &mut b).await?;
    scene.judge(&[])
}

/// As 9: nobody can notify a paused process; the token stops what it writes.
pub(crate) async fn holder_is_paused() -> Result<Report> {
    let server = server();
    let scene = Scene::begin(SCHEME, "holder is paused");
    let [a, b] = clients(&server).await?;
    // A paused process renews nothing.
    provocations::pause(scene, [a.unrenewed(), b], &[]).await
}

/// As 8 and 9: a quorum stays available when a master dies.
pub(crate) async fn master_dies() -> Result<Report> {
    let nodes = nodes();
    let scene = Scene::begin(SCHEME, "a master dies");
    let locks = [quorum(&nodes).await?, quorum(&nodes).await?];
    provocations::master_dies(scene, &nodes, locks, &[]).await
}

/// As 9: a node that has restarted does not vote until every lease that it may have forgotten has
/// ended.
pub(crate) async fn node_restarts_empty() -> Result<Report> {
    let nodes = nodes();
    let scene = Scene::begin(SCHEME, "node restarts empty");
    let locks = [quorum(&nodes).await?, quorum(&nodes).await?];
    provocations::node_restarts_empty(scene, &nodes, locks, &[]).await
}

async fn clients<const N: usize>(server: &RedisServer) -> Result<[Lock; N]> {
    let url = server.url();
    let locks = [(); N].map(|()| polylock::connect(&url));
    let locks = futures_util::future::try_join_all(locks).await?;
    let locks: Vec<_> = locks.into_iter().map(Lock::new).collect();
    Ok(locks.try_into().ok().expect("BUG: as many as there were"))
}

async fn quorum(nodes: &RedisNodes) -> Result<Lock> {
    let addresses: Vec<_> = nodes.iter().map(|node| node.address()).collect();
    // No lease of these scenes is longer.
    let url = format!("redlock://{}?rejoin-delay=1s", addresses.join(","));
    Ok(Lock::new(polylock::connect(&url).await?))
}

struct Lock {
    locks: Arc<dyn DistributedLock>,
    wait: Wait,
    is_renewed: bool,
    guard: Option<LockGuard>,
}

impl Lock {
    fn new(locks: Arc<dyn DistributedLock>) -> Self {
        Self {
            locks,
            wait: Wait::AtMost(Duration::from_secs(20)),
            is_renewed: true,
            guard: None,
        }
    }

    fn trying(self) -> Self {
        let wait = Wait::Never;
        Self { wait, ..self }
    }

    fn unrenewed(self) -> Self {
        let is_renewed = false;
        Self { is_renewed, ..self }
    }
}

impl stage::Lock for Lock {
    async fn acquire(&mut self) -> Result<Option<Duration>> {
        let mut request = self.locks.request("orders").ttl(TTL).wait(self.wait);
        if !self.is_renewed {
            request = request.manual_renewal();
        }
        match request.acquire().await {
            Ok(guard) => self.guard = Some(guard),
            Err(error) if error.kind() == ErrorKind::Contended => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        Ok(Some(TTL))
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

/// As short as they come; 30 s is the default.
const TTL: Duration = Duration::from_secs(1);
