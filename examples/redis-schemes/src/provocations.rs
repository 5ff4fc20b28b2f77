//! What the schemes are put through, the same for all of them, and the servers that it takes.

use std::time::Duration;

use anyhow::{Result, ensure};
use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{RedisNodes, RedisOptions, RedisServer};
use redis::aio::MultiplexedConnection;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use crate::stage::{Fault, Lock, Report, Scene};

/// A dies while it holds the lock, and B waits for it.
pub(crate) async fn crash<L: Lock>(
    mut scene: Scene,
    [mut a, mut b]: [L; 2],
    why: &str,
    expected: &[Fault],
) -> Result<Report> {
    scene.enter('A', &mut a).await?;
    a.die();
    scene.note("A dies");
    scene.enter_if_ever('B', &mut b, why).await?;
    scene.judge(expected)
}

/// A sends its release into a slow network, and it arrives when B holds the lock.
pub(crate) async fn late_release<L: Lock>(
    mut scene: Scene,
    [mut a, mut b, mut c]: [L; 3],
    expected: &[Fault],
) -> Result<Report> {
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
pub(crate) async fn long_work<L: Lock>(
    mut scene: Scene,
    [mut a, mut b, mut c]: [L; 3],
    expected: &[Fault],
) -> Result<Report> {
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
pub(crate) async fn pause<L: Lock>(
    mut scene: Scene,
    [mut a, mut b]: [L; 2],
    expected: &[Fault],
) -> Result<Report> {
    scene.enter('A', &mut a).await?;
    scene.note("A sees that it has time left, begins to write, and is paused");
    scene.enter('B', &mut b).await?;
    scene.writes('B', &b);
    scene.note("A wakes and continues its write");
    scene.late_write('A', &a);
    scene.judge(expected)
}

/// One of three masters dies while nobody holds the lock.
pub(crate) async fn master_dies<L: Lock>(
    mut scene: Scene,
    nodes: &RedisNodes,
    [mut a, mut b]: [L; 2],
    expected: &[Fault],
) -> Result<Report> {
    scene.enter('A', &mut a).await?;
    scene.writes('A', &a);
    scene.release('A', &mut a, true).await?;
    block_in_place(|| nodes[2].kill());
    scene.note("one of three masters dies; nobody holds the lock");
    let why = "two masters of three are not all of them";
    if scene.enter_if_ever('B', &mut b, why).await? {
        scene.writes('B', &b);
        scene.release('B', &mut b, true).await?;
    }
    scene.judge(expected)
}

/// A majority grants the lock to A, and one of them forgets it.
pub(crate) async fn node_restarts_empty<L: Lock>(
    mut scene: Scene,
    nodes: &RedisNodes,
    [mut a, mut b]: [L; 2],
    expected: &[Fault],
) -> Result<Report> {
    block_in_place(|| nodes[2].kill());
    scene.note("node 3 is down");
    scene.enter('A', &mut a).await?;
    block_in_place(|| nodes[1].restart());
    block_in_place(|| nodes[2].restart());
    scene.note("node 2 restarts and has forgotten everything, node 3 is up");
    taken_over(&mut scene, &mut a, &mut b).await?;
    scene.judge(expected)
}

/// A server that keeps everything in memory, and clients of it.
pub(crate) async fn clients<const N: usize>() -> Result<(RedisServer, [MultiplexedConnection; N])> {
    let server = server();
    let mut clients = Vec::new();
    for _ in 0..N {
        clients.push(connect(server.port()).await?);
    }
    let clients = clients.try_into();
    Ok((server, clients.expect("BUG: so many were pushed")))
}

pub(crate) fn server() -> RedisServer {
    block_in_place(|| RedisServer::start(RedisOptions::new()))
}

pub(crate) fn nodes() -> RedisNodes {
    block_in_place(|| RedisNodes::start(3, &RedisOptions::new()))
}

pub(crate) async fn connect(port: u16) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(("127.0.0.1", port))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

/// A master with an asynchronous replica that does not know what the master does from now on.
pub(crate) struct Pair {
    pub(crate) master: RedisServer,
    pub(crate) replica: RedisServer,
    _wire: Proxy,
}

impl Pair {
    pub(crate) async fn part() -> Result<Self> {
        let master = server();
        let wire = block_in_place(|| Proxy::of_bytes(master.port()));
        let address = format!("127.0.0.1 {}", wire.port());
        let options = RedisOptions::new().with_config("replicaof", &address);
        let replica = block_in_place(|| RedisServer::start(options));
        let info = || block_in_place(|| replica.try_command(&["INFO", "replication"]));
        let is_up = |info: String| info.contains("master_link_status:up");
        while !info()?.text().is_some_and(is_up) {
            sleep(Duration::from_millis(20)).await;
        }
        wire.hold(Direction::Replies);
        Ok(Self {
            master,
            replica,
            _wire: wire,
        })
    }

    /// The master dies and the replica takes its place.
    pub(crate) fn fail_over(&self, scene: &mut Scene) -> Result<()> {
        block_in_place(|| self.master.kill());
        let promoted = block_in_place(|| self.replica.try_command(&["REPLICAOF", "NO", "ONE"]))?;
        ensure!(!promoted.is_error(), "the replica does not become a master");
        scene.note("the master dies; its replica, which knows of no lock, takes its place");
        Ok(())
    }
}

/// Longer than the lock of any scheme lasts that nobody renews.
const WORK: Duration = Duration::from_millis(1500);
