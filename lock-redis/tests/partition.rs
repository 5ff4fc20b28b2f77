//! A network that falls into two parts, with a holder and the old master in the smaller one.
//!
//! Needs the rights to make network namespaces.

use std::time::Duration;

use lock_testkit::history::{HistoryEvent, What};
use lock_testkit::network::{Network, NetworkHost};
use lock_testkit::servers::{RedisCluster, RedisOptions, RedisSentinels, RedisServer, Reply};
use lock_testkit::taker::{Taker, TakerProcess};

use crate::support::{SOON, key, until};

/// Long enough for a lease to outlast the failover, so that the new master knows it.
const TTL: Duration = Duration::from_secs(6);

/// The lock. Its slot is in the first third of them.
const NAME: &str = "b";

/// The deadline of all waits in a test.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Two processes that want one lock, each on a side.
struct Sides {
    network: Network,
    small: NetworkHost,
    large: [NetworkHost; 2],
    holder: NetworkHost,
    next: NetworkHost,
}

impl Sides {
    fn new() -> Self {
        let network = Network::new().expect("a network");
        let host = |name| network.host(name);
        Self {
            small: host("small"),
            large: [host("large-1"), host("large-2")],
            holder: host("holder"),
            next: host("next"),
            network,
        }
    }

    fn split(&self) {
        let [first, second] = &self.large;
        self.network
            .partition(&[&self.small, &self.holder], &[first, second, &self.next]);
    }
}

fn take(host: &NetworkHost, url: &str) -> TakerProcess {
    let taker = Taker::example("redis-taker", url).with_prefix(host.prefix());
    let take = taker.take(&key(NAME)).with_ttl(TTL).with_wait(TIMEOUT);
    take.spawn().expect("it starts")
}

async fn granted(process: &TakerProcess) -> HistoryEvent {
    let granted = |what: &What| matches!(what, What::Granted { .. });
    process.told(TIMEOUT, granted).await
}

async fn lost(process: &TakerProcess) -> HistoryEvent {
    let lost = |what: &What| matches!(what, What::Lost { .. });
    process.told(TIMEOUT, lost).await
}

fn token(event: &HistoryEvent) -> Option<u64> {
    match event.what {
        What::Granted { token, .. } => token,
        _ => None,
    }
}

/// How long the lock had two holders, if it had.
fn overlap(granted: &HistoryEvent, lost: &HistoryEvent) -> Option<Duration> {
    let nanos = lost.at.checked_sub(granted.at)?;
    Some(Duration::from_nanos(nanos))
}

/// Cuts off the holder together with the old master, and returns how long there were two holders.
async fn overlap_of(
    sides: &Sides,
    [of_holder, of_next]: [&str; 2],
    has_moved: impl FnMut() -> bool,
) -> Option<Duration> {
    let holder = take(&sides.holder, of_holder);
    let first = granted(&holder).await;
    // With renewals behind it.
    tokio::time::sleep(TTL / 2).await;
    sides.split();
    until("another master", has_moved).await;
    let next = take(&sides.next, of_next);
    let second = granted(&next).await;
    assert!(token(&second) > token(&first), "{first:?} {second:?}");
    let loss = lost(&holder).await;
    overlap(&second, &loss)
}

fn url(servers: &RedisSentinels, parameters: &str) -> String {
    format!("{}?namespace={parameters}", servers.url())
}

#[tokio::test]
async fn a_holder_beside_a_few_sentinels_is_out_before_the_next_is_in() {
    let sides = Sides::new();
    let (small, [first, second]) = (&sides.small, &sides.large);
    let servers =
        RedisSentinels::start_on([small, first], [small, first, second], &RedisOptions::new());
    let has_moved = || [1, 2].iter().all(|n| servers.master_seen_by(*n) == Some(1));
    let overlap = overlap_of(&sides, [&url(&servers, ""); 2], has_moved).await;
    assert_eq!(overlap, None);
}

#[tokio::test]
async fn acks_of_replicas_on_its_side_do_not_keep_a_lock_forever() {
    let sides = Sides::new();
    let (small, [first, second]) = (&sides.small, &sides.large);
    let servers =
        RedisSentinels::start_on([small, first], [small, first, second], &RedisOptions::new());
    let master = &servers.servers()[0];
    let of = format!("{} {}", small.address(), master.port());
    let beside = RedisOptions::new().with_host(small);
    let beside = RedisServer::start(beside.with_config("replicaof", &of));
    let known = |sentinel: &RedisServer| {
        let words = ["SENTINEL", "REPLICAS", RedisSentinels::MASTER];
        sentinel.command(&words).items().len() == 2
    };
    until("all know both replicas", || {
        servers.sentinels().iter().all(known)
    })
    .await;
    let has_moved = || [1, 2].iter().all(|n| servers.master_seen_by(*n) == Some(1));
    let urls = [&*url(&servers, "&min-replica-acks=1"), &url(&servers, "")];
    let overlap = overlap_of(&sides, urls, has_moved).await;
    assert_eq!(overlap, None);
    // It has acknowledged everything.
    let role = beside.command(&["ROLE"]);
    assert_eq!(
        role.items().first().and_then(Reply::text).as_deref(),
        Some("slave")
    );
}

/// After this time without the others a master of the cluster takes no writes any more.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// Three masters, the first of which has the slot of the lock and a replica on another host.
fn cluster(sides: &Sides) -> RedisCluster {
    let (small, [first, second]) = (&sides.small, &sides.large);
    let timeout = NODE_TIMEOUT.as_millis().to_string();
    let options = RedisOptions::new().with_config("cluster-node-timeout", &timeout);
    let cluster = RedisCluster::start_on(&[small, first, second], &[first], &options);
    assert_eq!(cluster.owner_of(cluster.slot_of(NAME)), 0);
    cluster
}

fn of(nodes: &[RedisServer], parameters: &str) -> String {
    let nodes: Vec<_> = nodes.iter().map(|node| node.address()).collect();
    format!("redis-cluster://{}?namespace={parameters}", nodes.join(","))
}

/// Whether the masters on the larger side have the replica in the place of its master.
fn has_moved(nodes: &[RedisServer]) -> bool {
    let address = nodes[3].address();
    nodes[1..3].iter().all(|node| {
        let known = node.command(&["CLUSTER", "NODES"]).text();
        let known = known.unwrap_or_default();
        let mut lines = known.lines();
        lines.any(|line| {
            line.contains(&*address) && line.contains("master") && line.ends_with(" 0-5460")
        })
    })
}

#[tokio::test]
async fn a_master_without_its_cluster_keeps_a_lock_for_the_node_timeout_and_a_lease() {
    let sides = Sides::new();
    let nodes = cluster(&sides);
    let urls = [&*of(&nodes[..3], ""), &of(&nodes[1..3], "")];
    let overlap = overlap_of(&sides, urls, || has_moved(&nodes)).await;
    // The last renewal that the old master takes, and the last one that the new one has.
    let bound = NODE_TIMEOUT + TTL / 3 + SOON / 5;
    assert!(
        overlap.unwrap_or_default() < bound,
        "two holders for {overlap:?}, and not less than {bound:?}"
    );
}

#[tokio::test]
async fn acks_keep_a_lock_of_a_cluster_from_two_holders() {
    let sides = Sides::new();
    let nodes = cluster(&sides);
    let urls = [
        &*of(&nodes[..3], "&min-replica-acks=1"),
        &of(&nodes[1..3], ""),
    ];
    let overlap = overlap_of(&sides, urls, || has_moved(&nodes)).await;
    assert_eq!(overlap, None);
}
