//! Three ways to lock with ZooKeeper, each better than the one before, and polylock.
//!
//! ```console
//! $ cargo run -p zookeeper-schemes
//! ```
//!
//! It starts a private ZooKeeper. Twenty clients with a session each wait while one holds the lock,
//! then hold it one after the other; the server counts how many watches each release triggers.
//!
//! | scheme | what happens |
//! |---|---|
//! | a persistent node | a holder that crashes leaves it behind: locked for ever |
//! | one ephemeral node that all waiters watch | it ends with the session; each release wakes all waiters, and all but one in vain |
//! | ephemeral sequential nodes, each waiter watches its predecessor | each release wakes one, in the order of arrival |
//! | polylock | the same, and a holder that is cut off is notified, with a fencing token |
//!
//! Do not copy the first three: in the third, a create whose reply is lost leaves a node that nobody
//! knows, and a holder does not notice that its session has ended.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use polylock::prelude::*;
use tokio::sync::Mutex;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as ZkError};

const PERSISTENT: CreateOptions<'_> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'_> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
const SEQUENTIAL: CreateOptions<'_> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const WAITERS: usize = 20;
/// Longer than a busy machine delays a heartbeat.
const SESSION: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    let server = block_in_place(|| Arc::new(ZooKeeperServer::start(ZooKeeperOptions::new())));
    let setup = connect(&server).await?;
    setup.create("/queue", b"", &PERSISTENT).await?;
    drop(setup);

    dead_holder_blocks(&server).await?;
    let herd = queue(&server, Scheme::OneEphemeral).await?;
    let line = queue(&server, Scheme::Sequential).await?;
    let ours = queue(&server, Scheme::Polylock).await?;
    ensure!(herd > 3 * WAITERS, "no herd: {herd} watches");
    ensure!(line == WAITERS, "a release woke more than one waiter");
    ensure!(ours <= 2 * WAITERS, "polylock woke a herd: {ours} watches");
    cut_off_holder_is_notified(&server).await
}

async fn connect(server: &ZooKeeperServer) -> Result<Client> {
    let connector = Client::connector().with_session_timeout(SESSION);
    Ok(connector.connect(&server.address()).await?)
}

/// A holder creates a persistent node and crashes.
async fn dead_holder_blocks(server: &ZooKeeperServer) -> Result<()> {
    let holder = connect(server).await?;
    holder.create("/persistent", b"", &PERSISTENT).await?;
    drop(holder);
    let (waiter, start) = (connect(server).await?, Instant::now());
    let mut attempts = 0;
    while start.elapsed() < Duration::from_secs(3) {
        match waiter.create("/persistent", b"", &PERSISTENT).await {
            Err(ZkError::NodeExists) => attempts += 1,
            created => bail!("the node ended with its creator: {created:?}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
    println!("Persistent        dead holder, {attempts} attempts refused after its session ended");
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Scheme {
    OneEphemeral,
    Polylock,
    Sequential,
}

/// Lets all clients hold the lock once. Returns how many watches their releases triggered.
async fn queue(server: &Arc<ZooKeeperServer>, scheme: Scheme) -> Result<usize> {
    let before = metric(server, "zk_sum_node_deleted_watch_count")?;
    let first = acquire(server, scheme).await?;
    let (inside, mut waiters) = (Arc::new(Mutex::new(())), JoinSet::new());
    for _ in 0..WAITERS {
        let (server, inside) = (Arc::clone(server), Arc::clone(&inside));
        waiters.spawn(async move {
            let release = acquire(&server, scheme).await?;
            let alone = inside.try_lock().context("two held the lock at once")?;
            sleep(Duration::from_millis(20)).await;
            drop(alone);
            release.await
        });
    }
    // Everybody waits before the first release.
    let start = Instant::now();
    while metric(server, "zk_watch_count")? < WAITERS {
        ensure!(start.elapsed() < TIMEOUT, "not all clients wait");
        sleep(Duration::from_millis(20)).await;
    }
    first.await?;
    while let Some(done) = waiters.join_next().await {
        done??;
    }
    let triggered = metric(server, "zk_sum_node_deleted_watch_count")? - before;
    let name = format!("{scheme:?}");
    println!("{name:<17} {WAITERS} waiters, {triggered} watches triggered by their releases");
    Ok(triggered)
}

fn metric(server: &ZooKeeperServer, name: &str) -> Result<usize> {
    let value = block_in_place(|| server.mntr(name)).with_context(|| format!("no {name}"))?;
    Ok(usize::try_from(value)?)
}

type Release = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Acquires the lock in a session of its own, and returns how to release it.
async fn acquire(server: &ZooKeeperServer, scheme: Scheme) -> Result<Release> {
    let zk = connect(server).await?;
    let node = match scheme {
        Scheme::OneEphemeral => create_or_watch(&zk).await?,
        Scheme::Sequential => stand_in_line(&zk).await?,
        Scheme::Polylock => {
            let locks = polylock::connect(&server.url()).await?;
            let guard = locks.lock("orders").await?;
            let release = async move { Ok(guard.release().await.map(drop)?) };
            return Ok(Box::pin(release));
        }
    };
    Ok(Box::pin(async move { Ok(zk.delete(&node, None).await?) }))
}

/// Whoever creates the node holds the lock; all others watch it, and wake up together.
async fn create_or_watch(zk: &Client) -> Result<String> {
    loop {
        match zk.create("/lock", b"", &EPHEMERAL).await {
            Err(ZkError::NodeExists) => {}
            created => return Ok(created.map(|_| "/lock".to_owned())?),
        }
        if let (Some(_), watcher) = zk.check_and_watch_stat("/lock").await? {
            watcher.changed().await;
        }
    }
}

/// The smallest number holds the lock; each of the others watches the one before it.
async fn stand_in_line(zk: &Client) -> Result<String> {
    let (_, number) = zk.create("/queue/lock-", b"", &SEQUENTIAL).await?;
    let own = format!("lock-{number}");
    loop {
        let mut nodes = zk.list_children("/queue").await?;
        nodes.sort();
        let Some(predecessor) = nodes.iter().rfind(|node| **node < own) else {
            return Ok(format!("/queue/{own}"));
        };
        let predecessor = format!("/queue/{predecessor}");
        if let (Some(_), watcher) = zk.check_and_watch_stat(&predecessor).await? {
            // The predecessor may have given up, so that it is not this one's turn yet.
            watcher.changed().await;
        }
    }
}

/// The network between a holder and the server breaks: the session ends, the next one gets the lock,
/// and the first has been notified by then.
async fn cut_off_holder_is_notified(server: &ZooKeeperServer) -> Result<()> {
    let network = Proxy::zookeeper(server.port());
    let here = polylock::connect(&format!("{}?session-timeout=2s", network.url())).await?;
    let there = polylock::connect(&server.url()).await?;
    let guard = here.lock("orders").await?;
    network.hold(Direction::Requests);
    let next = there.lock_within("orders", TIMEOUT).await?;
    let (held, reason) = (guard.is_held(), guard.lost().await);
    println!("Polylock          cut off: {reason}; held when the next holder enters: {held}");
    ensure!(!held, "two held the lock at once");
    ensure!(guard.fencing_token() < next.fencing_token());
    next.release().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_scheme_does_what_it_is_known_to_do() -> anyhow::Result<()> {
        super::main()
    }
}
