//! What the schemes are put through, the same for all of them, and the servers that it takes.

use std::time::Duration;

use anyhow::{Result, ensure};
use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{RedisNodes, RedisOptions, RedisServer};
use redis::aio::MultiplexedConnection;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use crate::stage::{Client, Fault, Lock, Scene};

/// A dies while it holds the lock, and B waits for it.
pub(crate) async fn crash<L: Lock>(expected: &[Fault]) -> Result<Scene> {
    let (_servers, [mut a, mut b]) = clients::<L, 2>(L::SERVERS, true).await?;
    let mut scene = Scene::begin::<L>("crash, and a waiter");
    scene.enter('A', &mut a).await?;
    a.die();
    scene.note("A dies");
    scene.enter('B', &mut b).await?;
    scene.judge(expected)
}

/// A sends its release into a slow network, and it arrives when B holds the lock.
pub(crate) async fn late_release<L: Lock>(expected: &[Fault]) -> Result<Scene> {
    let (_servers, [mut a, mut b, mut c]) = clients::<L, 3>(L::SERVERS, false).await?;
    let mut scene = Scene::begin::<L>("release is late");
    scene.enter('A', &mut a).await?;
    scene.writes('A', &a);
    scene.note("A sends its release into a slow network");
    scene.enter('B', &mut b).await?;
    scene.release('A', &mut a, false).await?;
    if scene.try_enter('C', &mut c).await? {
        scene.writes('C', &c);
    }
    scene.writes('B', &b);
    scene.judge(expected)
}

/// A works for longer than its lock lasts, and releases it then.
pub(crate) async fn long_work<L: Lock>(expected: &[Fault]) -> Result<Scene> {
    let (_servers, [mut a, mut b, mut c]) = clients::<L, 3>(L::SERVERS, true).await?;
    let mut scene = Scene::begin::<L>("work outlives the lock");
    scene.enter('A', &mut a).await?;
    let entered = timeout(WORK, scene.enter('B', &mut b)).await;
    if entered.is_ok() {
        scene.writes('B', &b);
    }
    scene.writes('A', &a);
    scene.release('A', &mut a, true).await?;
    if entered.is_err() {
        scene.enter('B', &mut b).await?;
        scene.writes('B', &b);
    }
    if scene.try_enter('C', &mut c).await? {
        scene.writes('C', &c);
    }
    scene.judge(expected)
}

/// The master dies, and its replica knows of no lock.
pub(crate) async fn fail_over<L: Lock>(expected: &[Fault]) -> Result<Scene> {
    let master = block_in_place(|| RedisServer::start(RedisOptions::new()));
    let wire = block_in_place(|| Proxy::of_bytes(master.port()));
    let address = format!("127.0.0.1 {}", wire.port());
    let options = RedisOptions::new().with_config("replicaof", &address);
    let replica = block_in_place(|| RedisServer::start(options));
    let info = || block_in_place(|| replica.try_command(&["INFO", "replication"]));
    let is_up = |info: String| info.contains("master_link_status:up");
    while !info()?.text().is_some_and(is_up) {
        sleep(Duration::from_millis(20)).await;
    }
    // From now on the replica does not know what the master does.
    wire.hold(Direction::Replies);
    let mut a = L::connect(Client::of('A', master.port())).await?;
    let mut scene = Scene::begin::<L>("failover");
    scene.enter('A', &mut a).await?;
    scene.writes('A', &a);
    block_in_place(|| master.kill());
    let promoted = block_in_place(|| replica.try_command(&["REPLICAOF", "NO", "ONE"]))?;
    ensure!(!promoted.is_error(), "the replica does not become a master");
    scene.note("the master dies; its replica, which knows of no lock, takes its place");
    let mut b = L::connect(Client::of('B', replica.port())).await?;
    taken_over(&mut scene, &mut a, &mut b).await?;
    scene.judge(expected)
}

/// A works on while the server gives the lock to B. It is notified, if the scheme does that.
pub(crate) async fn taken_over<L: Lock>(scene: &mut Scene, a: &mut L, b: &mut L) -> Result<()> {
    scene.enter('B', b).await?;
    scene.writes('B', b);
    match scene.is_notified('A', a).await {
        true => scene.late_write('A', a),
        false => scene.writes('A', a),
    }
    Ok(())
}

/// A is paused between its last look at the lock and its write.
pub(crate) async fn pause<L: Lock>(expected: &[Fault]) -> Result<Scene> {
    let (_servers, [mut a, mut b]) = clients::<L, 2>(L::SERVERS, false).await?;
    let mut scene = Scene::begin::<L>("holder is paused");
    scene.enter('A', &mut a).await?;
    scene.note("A sees that it has time left, begins to write, and is paused");
    scene.enter('B', &mut b).await?;
    scene.writes('B', &b);
    scene.note("A wakes and continues its write");
    scene.late_write('A', &a);
    scene.judge(expected)
}

/// One of three masters dies while nobody holds the lock.
pub(crate) async fn master_dies<L: Lock>(expected: &[Fault]) -> Result<Scene> {
    let (servers, [mut a, mut b]) = clients::<L, 2>(3, true).await?;
    let mut scene = Scene::begin::<L>("a master dies");
    scene.enter('A', &mut a).await?;
    scene.writes('A', &a);
    scene.release('A', &mut a, true).await?;
    block_in_place(|| servers[2].kill());
    scene.note("one of three masters dies; nobody holds the lock");
    if scene.enter('B', &mut b).await? {
        scene.writes('B', &b);
        scene.release('B', &mut b, true).await?;
    }
    scene.judge(expected)
}

/// A majority grants the lock to A, and one of them forgets it.
pub(crate) async fn node_restarts_empty<L: Lock>(expected: &[Fault]) -> Result<Scene> {
    let (servers, [mut a, mut b]) = clients::<L, 2>(3, true).await?;
    let mut scene = Scene::begin::<L>("node restarts empty");
    block_in_place(|| servers[2].kill());
    scene.note("node 3 is down");
    scene.enter('A', &mut a).await?;
    block_in_place(|| servers[1].restart());
    block_in_place(|| servers[2].restart());
    scene.note("node 2 restarts and has forgotten everything, node 3 is up");
    taken_over(&mut scene, &mut a, &mut b).await?;
    scene.judge(expected)
}

/// Servers that keep everything in memory, and clients of them. A may be one that renews nothing.
pub(crate) async fn clients<L: Lock, const N: usize>(
    servers: usize,
    renews: bool,
) -> Result<(RedisNodes, [L; N])> {
    let servers = block_in_place(|| RedisNodes::start(servers, &RedisOptions::new()));
    let mut clients = Vec::new();
    for who in ('A'..).take(N) {
        let ports = servers.iter().map(|server| server.port()).collect();
        let renews = renews || who != 'A';
        clients.push(L::connect(Client { who, ports, renews }).await?);
    }
    let clients = clients.try_into().ok();
    Ok((servers, clients.expect("BUG: so many were pushed")))
}

impl Client {
    pub(crate) fn of(who: char, port: u16) -> Self {
        let (ports, renews) = (vec![port], true);
        Self { who, ports, renews }
    }
}

pub(crate) async fn connect(port: u16) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(("127.0.0.1", port))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

/// Longer than the lock of any scheme lasts that nobody renews.
const WORK: Duration = Duration::from_millis(1500);
