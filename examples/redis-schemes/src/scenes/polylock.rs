//! 10: polylock, under the provocations of the other schemes. A lock that the server forgets is lost
//! here too: its holder is notified, and what it still writes is refused, because the token of the
//! next holder is larger.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::RedisServer;
use polylock::engine::{BootClock, Clock, Engine, Moment, OnRuntime, OsEntropy};
use polylock::prelude::*;
use polylock::redis::{Redis, RedisConfig};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::stage::{Pair, Report, Scene, nodes, server};

const SCHEME: &str = "10 polylock";

/// As 1 and 2: one step acquires the lock and gives it an end, which no waiter moves.
pub(crate) async fn crash() -> Result<Report> {
    let server = server();
    let (a, b) = (connect(&server).await?, connect(&server).await?);
    let mut scene = Scene::begin(SCHEME, "crash, and a waiter");
    scene.asks('A');
    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters_with('A', &guard);
    // From here on the client sends nothing, like a dead one.
    guard.abandon();
    scene.note("A dies");
    next(&mut scene, &b).await?;
    scene.judge(&[])
}

/// As 3: leases end by the clock of the server, which no client compares with its own.
pub(crate) async fn clocks_differ() -> Result<Report> {
    let server = server();
    let spawner = Arc::new(OnRuntime::current());
    let ahead = Engine::with(
        "redis",
        Arc::new(Ahead),
        Arc::new(OsEntropy::default()),
        spawner,
    );
    let config = RedisConfig::new("127.0.0.1", server.port());
    let a = Redis::connect(config.clone()).await?;
    let b = Redis::connect(config.with_engine(ahead)).await?;
    let mut scene = Scene::begin(SCHEME, "clocks differ");
    scene.asks('A');
    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters_with('A', &guard);
    scene.asks('B');
    match b.try_lock(KEY).await? {
        Some(guard) => scene.enters_with('B', &guard),
        None => scene.gives_up('B', "its clock is a minute ahead, and it is refused"),
    }
    scene.writes_with('A', &guard);
    scene.releases('A', guard.release().await? == Released::Clean);
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
    let (a, b) = (connect(&server).await?, connect(&server).await?);
    let mut scene = Scene::begin(SCHEME, "release is late");
    scene.asks('A');
    let late = a.request(KEY).ttl(TTL).manual_renewal().acquire().await?;
    scene.enters_with('A', &late);
    scene.asks('B');
    let guard = b.lock_within(KEY, TIMEOUT).await?;
    scene.enters_with('B', &guard);
    scene.late_release('A', late.release().await? == Released::Clean);
    scene.writes_with('B', &guard);
    scene.releases('B', guard.release().await? == Released::Clean);
    scene.judge(&[])
}

/// As 5, 6 and 7: a lease is renewed for as long as its guard lives.
pub(crate) async fn work_outlives_lease() -> Result<Report> {
    let server = server();
    let (a, b) = (connect(&server).await?, connect(&server).await?);
    let mut scene = Scene::begin(SCHEME, "work outlives the lease");
    scene.asks('A');
    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters_with('A', &guard);
    let waiter = b.lock_within(KEY, TIMEOUT);
    let work = async {
        guard.run(sleep(TTL * 3 / 2)).await?;
        scene.writes_with('A', &guard);
        scene.releases('A', guard.release().await? == Released::Clean);
        scene.asks('B');
        anyhow::Ok(())
    };
    let (worked, entered) = tokio::join!(work, waiter);
    worked?;
    let guard = entered?;
    scene.enters_with('B', &guard);
    scene.writes_with('B', &guard);
    scene.releases('B', guard.release().await? == Released::Clean);
    scene.judge(&[])
}

/// As 7, when renewals do not arrive: the guard knows by itself until when it is valid.
pub(crate) async fn cut_off() -> Result<Report> {
    let server = server();
    let network = block_in_place(|| Proxy::start(server.port()));
    let (a, b) = (
        polylock::connect(&network.url()).await?,
        connect(&server).await?,
    );
    let mut scene = Scene::begin(SCHEME, "renewal fails");
    scene.asks('A');
    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters_with('A', &guard);
    network.hold(Direction::Requests);
    scene.note("the network between A and the server breaks");
    let reason = guard.lost().await;
    scene.is_notified('A', &reason.to_string());
    next(&mut scene, &b).await?;
    scene.late_write('A', Some(&guard));
    scene.judge(&[])
}

/// As 7, when the server forgets.
pub(crate) async fn fail_over() -> Result<Report> {
    let pair = Pair::part().await?;
    let a = connect(&pair.master).await?;
    let mut scene = Scene::begin(SCHEME, "fail-over");
    scene.asks('A');
    let guard = a.request(KEY).ttl(TTL).acquire().await?;
    scene.enters_with('A', &guard);
    scene.writes_with('A', &guard);
    pair.fail_over()?;
    scene.note("the master dies; its replica, which knows of no lock, takes its place");
    next(&mut scene, &connect(&pair.replica).await?).await?;
    let reason = guard.lost().await;
    scene.is_notified('A', &reason.to_string());
    scene.late_write('A', Some(&guard));
    scene.judge(&[])
}

/// As 9: nobody can notify a paused process; the token stops what it writes.
pub(crate) async fn holder_is_paused() -> Result<Report> {
    let server = server();
    let (a, b) = (connect(&server).await?, connect(&server).await?);
    let mut scene = Scene::begin(SCHEME, "holder is paused");
    scene.asks('A');
    // A paused process renews nothing.
    let guard = a.request(KEY).ttl(TTL).manual_renewal().acquire().await?;
    scene.enters_with('A', &guard);
    scene.note("A begins to write, and is paused");
    next(&mut scene, &b).await?;
    scene.note("A wakes and continues its write");
    scene.late_write('A', Some(&guard));
    scene.judge(&[])
}

/// As 8 and 9: a quorum stays available when a master dies.
pub(crate) async fn master_dies() -> Result<Report> {
    let nodes = nodes();
    let (a, b) = (quorum(&nodes).await?, quorum(&nodes).await?);
    let mut scene = Scene::begin(SCHEME, "a master dies");
    next_of('A', &mut scene, &a).await?;
    block_in_place(|| nodes[2].kill());
    scene.note("one of three masters dies");
    next(&mut scene, &b).await?;
    scene.judge(&[])
}

/// As 9: a node that has restarted does not vote until every lease that it may have forgotten has
/// ended.
pub(crate) async fn node_restarts_empty() -> Result<Report> {
    let nodes = nodes();
    let (a, b) = (quorum(&nodes).await?, quorum(&nodes).await?);
    let mut scene = Scene::begin(SCHEME, "node restarts empty");
    block_in_place(|| nodes[2].kill());
    scene.note("node 3 is down");
    scene.asks('A');
    let guard = a
        .request(KEY)
        .ttl(TTL)
        .wait(Wait::AtMost(TIMEOUT))
        .acquire()
        .await?;
    scene.enters_with('A', &guard);
    block_in_place(|| nodes[1].restart());
    block_in_place(|| nodes[2].restart());
    scene.note("node 2 restarts and has forgotten everything, node 3 is up");
    let reason = guard.lost().await;
    scene.is_notified('A', &reason.to_string());
    next(&mut scene, &b).await?;
    scene.late_write('A', Some(&guard));
    scene.judge(&[])
}

async fn next(scene: &mut Scene, locks: &Arc<dyn DistributedLock>) -> Result<()> {
    next_of('B', scene, locks).await
}

/// Waits for the lock, works and releases it.
async fn next_of(who: char, scene: &mut Scene, locks: &Arc<dyn DistributedLock>) -> Result<()> {
    scene.asks(who);
    let acquired = locks
        .request(KEY)
        .ttl(TTL)
        .wait(Wait::AtMost(TIMEOUT))
        .acquire()
        .await;
    let guard = acquired.with_context(|| format!("{who} waits in vain"))?;
    scene.enters_with(who, &guard);
    scene.writes_with(who, &guard);
    scene.releases(who, guard.release().await? == Released::Clean);
    Ok(())
}

async fn connect(server: &RedisServer) -> Result<Arc<dyn DistributedLock>> {
    Ok(polylock::connect(&server.url()).await?)
}

async fn quorum(nodes: &[RedisServer]) -> Result<Arc<dyn DistributedLock>> {
    let addresses: Vec<_> = nodes.iter().map(|node| node.address()).collect();
    // No lease of these scenes is longer.
    let url = format!("redlock://{}?rejoin-delay=1s", addresses.join(","));
    Ok(polylock::connect(&url).await?)
}

const KEY: &str = "orders";
/// As short as they come; 30 s is the default.
const TTL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(20);
