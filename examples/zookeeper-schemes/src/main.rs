//! Three ways to lock with ZooKeeper, each better than the one before, and polylock.
//!
//! ```console
//! $ cargo run -p zookeeper-schemes
//! ```
//!
//! It starts a private ZooKeeper. The session of a holder ends. Then twenty clients with a session each wait
//! while another one holds the lock, then hold it one after the other; the server counts how many watches the
//! releases trigger.
//!
//! | scheme | what happens |
//! |---|---|
//! | a persistent node | it outlives a holder that crashes: locked forever |
//! | one ephemeral node that all waiters watch | each release wakes all waiters, and all but one wait again |
//! | ephemeral sequential nodes, each waiter watches its predecessor | each release wakes one, in the order of arrival |
//! | polylock | the same, with a fencing token, and a holder whose session ends is notified |
//!
//! Do not copy the first three: in the third, a create whose reply is lost leaves a node that no client
//! knows, and a holder does not notice that its session has ended.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use polylock::prelude::*;
use tokio::sync::Mutex;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as ZkError};

const PERSISTENT: CreateOptions<'_> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'_> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
const SEQUENTIAL: CreateOptions<'_> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const WAITERS: i64 = 20;
/// Longer than a busy machine delays a heartbeat.
const SESSION: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<()> {
    timeout(Duration::from_secs(60), compare()).await?
}

async fn compare() -> Result<()> {
    let server = block_in_place(|| ZooKeeperServer::start(ZooKeeperOptions::new()));
    let zk = connect(&server).await?;
    zk.create("/queue", b"", &PERSISTENT).await?;
    dead_holder_blocks(&server, &zk).await?;
    let herd = queue(&server, Scheme::OneEphemeral).await?;
    ensure!(herd > 3 * WAITERS, "no herd: {herd} watches");
    let line = queue(&server, Scheme::Sequential).await?;
    ensure!(line == WAITERS, "a release woke more than one waiter");
    let ours = queue(&server, Scheme::Polylock).await?;
    ensure!(ours <= 2 * WAITERS, "polylock woke a herd: {ours} watches");
    Ok(())
}

async fn connect(server: &ZooKeeperServer) -> Result<Client> {
    let connector = Client::connector().with_session_timeout(SESSION);
    Ok(connector.connect(&server.address()).await?)
}

/// A holder creates a persistent node, and its session ends. A second node, which is ephemeral, shows when its session has
/// ended.
async fn dead_holder_blocks(server: &ZooKeeperServer, waiter: &Client) -> Result<()> {
    let holder = connect(server).await?;
    holder.create("/persistent", b"", &PERSISTENT).await?;
    holder.create("/session", b"", &EPHEMERAL).await?;
    drop(holder);
    while waiter.check_stat("/session").await?.is_some() {
        sleep(Duration::from_millis(20)).await;
    }
    let attempt = waiter.create("/persistent", b"", &PERSISTENT).await;
    let is_refused = matches!(attempt, Err(ZkError::NodeExists));
    ensure!(is_refused, "the persistent node ended with its session");
    println!("Persistent: the holder and its session are gone, the lock is held");
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Scheme {
    OneEphemeral,
    Polylock,
    Sequential,
}

/// Lets all clients hold the lock once. Returns how many watches their releases triggered.
async fn queue(server: &ZooKeeperServer, scheme: Scheme) -> Result<i64> {
    let before = metric(server, "zk_sum_node_deleted_watch_count")?;
    let is_first = Mutex::new(true);
    // One holds the lock while the others wait.
    let clients = (0..=WAITERS).map(|_| hold(server, scheme, &is_first));
    try_join_all(clients).await?;
    let triggered = metric(server, "zk_sum_node_deleted_watch_count")? - before;
    println!("{scheme:?}: {WAITERS} waiters, {triggered} watches triggered by releases");
    Ok(triggered)
}

fn metric(server: &ZooKeeperServer, name: &str) -> Result<i64> {
    block_in_place(|| server.mntr(name)).with_context(|| format!("no {name}"))
}

/// Acquires the lock in a session of its own, works, and releases it.
async fn hold(server: &ZooKeeperServer, scheme: Scheme, is_first: &Mutex<bool>) -> Result<()> {
    let (zk, node) = match scheme {
        Scheme::OneEphemeral => create_or_watch(connect(server).await?).await?,
        Scheme::Sequential => stand_in_line(connect(server).await?).await?,
        Scheme::Polylock => {
            let locks = polylock::connect(&server.url()).await?;
            let guard = locks.lock("orders").await?;
            // The first holder watches its own node, too.
            work(server, is_first, WAITERS + 1).await?;
            guard.release().await?;
            return Ok(());
        }
    };
    work(server, is_first, WAITERS).await?;
    Ok(zk.delete(&node, None).await?)
}

/// Checks that nobody else holds the lock. The first holder works until the server
/// counts so many watches: then all others wait.
async fn work(server: &ZooKeeperServer, is_first: &Mutex<bool>, watches: i64) -> Result<()> {
    let mut is_first = is_first.try_lock().context("two hold the lock at once")?;
    while *is_first && metric(server, "zk_watch_count")? < watches {
        sleep(Duration::from_millis(20)).await;
    }
    *is_first = false;
    sleep(Duration::from_millis(20)).await;
    Ok(())
}

/// The client that creates the node holds the lock; all others watch it, and wake up together.
async fn create_or_watch(zk: Client) -> Result<(Client, String)> {
    while let Err(error) = zk.create("/lock", b"", &EPHEMERAL).await {
        ensure!(error == ZkError::NodeExists, error);
        if let (Some(_), watcher) = zk.check_and_watch_stat("/lock").await? {
            watcher.changed().await;
        }
    }
    Ok((zk, "/lock".to_owned()))
}

/// The smallest number holds the lock; each of the others watches the one before it.
async fn stand_in_line(zk: Client) -> Result<(Client, String)> {
    let (_, number) = zk.create("/queue/lock-", b"", &SEQUENTIAL).await?;
    let own = format!("lock-{number}");
    loop {
        let nodes = zk.list_children("/queue").await?;
        let Some(predecessor) = nodes.iter().filter(|node| **node < own).max() else {
            return Ok((zk, format!("/queue/{own}")));
        };
        let predecessor = format!("/queue/{predecessor}");
        if let (Some(_), watcher) = zk.check_and_watch_stat(&predecessor).await? {
            // The predecessor may have stopped waiting, so that it is not the turn of this client.
            watcher.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_scheme_does_what_it_is_known_to_do() -> anyhow::Result<()> {
        super::main()
    }
}
