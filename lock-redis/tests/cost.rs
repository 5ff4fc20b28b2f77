//! The cost of a contended lock for the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use lock_testkit::servers::{RedisCluster, RedisServer};
use polylock_coordination::Once;
use polylock_core::DistributedLock;
use polylock_redis::Redis;
use tokio::task::JoinSet;

use crate::support::{
    Place, SOON, TTL, count, granted, of_cluster, open, pass, release, request, take, take_long,
    waiting, with_acks, within,
};

/// The commands that the server has run since the last reset, without those of the test.
fn commands(place: &Place) -> BTreeMap<String, u64> {
    let mut commands = crate::support::commands(&place.server);
    let of_test = ["config|resetstat", "exists", "type", "xlen"];
    commands.retain(|name, _| !of_test.contains(&name.as_str()));
    commands
}

fn counts<const N: usize>(commands: [(&str, u64); N]) -> BTreeMap<String, u64> {
    BTreeMap::from(commands.map(|(name, calls)| (name.to_owned(), calls)))
}

fn cheapest(rounds: impl IntoIterator<Item = BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let rounds = rounds.into_iter();
    rounds.min_by_key(total).expect("a round")
}

fn total(commands: &BTreeMap<String, u64>) -> u64 {
    commands.values().sum()
}

#[tokio::test]
async fn a_contended_acquisition_and_its_release_cost_eight_commands() {
    let place = Place::new();
    let clients = [place.elsewhere().await, place.elsewhere().await];
    let one = || within(request("a").with_ttl(30 * TTL), SOON);
    let mut guard = take(&clients[1], "a").await;
    let mut rounds = Vec::new();
    for round in 0..20 {
        place.command(&["CONFIG", "RESETSTAT"]);
        let next = waiting(&clients[round % 2], one());
        place.queued("a", 1).await;
        release(guard).await;
        guard = granted(next).await;
        // A renewal or a heartbeat may fall into the same moment.
        rounds.push(commands(&place));
    }
    release(guard).await;
    let expected = [
        ("evalsha", 1),
        ("get", 1),
        ("publish", 1),
        ("set", 1),
        ("xadd", 2),
        ("xdel", 1),
        ("xrange", 1),
    ];
    let expected = counts(expected);
    // On a busy machine, a waiter may send a heartbeat before it is served.
    let as_expected = rounds.iter().filter(|round| **round == expected);
    assert!(as_expected.count() >= rounds.len() / 4, "{rounds:?}");
    place
        .assert_nothing_left(&[&clients[0], &clients[1]], "a")
        .await;
}

/// Neither client knows that the lock is wanted: the plain commands fail, a script joins the queue, and the
/// release finds a waiter that it did not expect.
#[tokio::test]
async fn the_first_wait_for_a_lock_costs_at_most_seventeen_commands() {
    let place = Place::new();
    let clients = [place.elsewhere().await, place.elsewhere().await];
    let mut rounds = Vec::new();
    for round in 0..10 {
        let key = format!("a{round}");
        let guard = take_long(&clients[0], &key).await;
        place.command(&["CONFIG", "RESETSTAT"]);
        let next = waiting(&clients[1], within(request(&key), SOON));
        place.queued(&key, 1).await;
        release(guard).await;
        let next = granted(next).await;
        rounds.push(commands(&place));
        release(next).await;
    }
    rounds.sort_by_key(total);
    let median = &rounds[rounds.len() / 2];
    assert!(total(median) <= 17, "the median is {median:?}");
}

/// The commands of a free lock and its release in all topologies.
#[tokio::test]
async fn a_free_lock_needs_no_script_in_a_cluster_and_with_acks() {
    let pair = [
        ("del", 1),
        ("evalsha", 1),
        ("get", 1),
        ("getrange", 1),
        ("pttl", 1),
        ("set", 1),
        ("xadd", 1),
    ];
    let cluster = RedisCluster::start(3, 0);
    let locks = open(of_cluster(&cluster)).await;
    let owner = &cluster[cluster.owner_of(cluster.slot_of("a"))];
    assert_eq!(cheapest_pair(&locks, owner).await, counts(pair));

    let (servers, locks) = with_acks().await;
    let mut waits = counts(pair);
    waits.insert("wait".to_owned(), 1);
    assert_eq!(cheapest_pair(&locks, servers.master()).await, waits);
}

/// What it costs to acquire and release a lock when the scripts are loaded and the counter exists.
async fn cheapest_pair(locks: &Redis, server: &RedisServer) -> BTreeMap<String, u64> {
    let mut rounds = Vec::new();
    for _ in 0..10 {
        server.command(&["CONFIG", "RESETSTAT"]);
        pass(locks, "a").await;
        let mut round = crate::support::commands(server);
        round.retain(|name, _| PAIR.contains(&&**name));
        rounds.push(round);
    }
    cheapest(rounds)
}

/// Commands of a pair that other clients of the server, such as its replica, do not send.
const PAIR: [&str; 9] = [
    "del", "eval", "evalsha", "get", "getrange", "pttl", "set", "wait", "xadd",
];

#[tokio::test]
async fn a_run_of_a_job_costs_one_lock_two_reads_and_one_write_and_a_skipped_one_a_read() {
    let place = Place::new();
    let locks = place.elsewhere().await;
    let run = async |key: &str| {
        place.command(&["CONFIG", "RESETSTAT"]);
        let once = Once::for_key(Arc::clone(&locks) as Arc<dyn DistributedLock>, "job", key);
        let once = once.expect("it is a name");
        let outcome = once.run(async |_| Ok::<_, String>(())).await;
        (outcome.expect("it ran").as_str(), commands(&place))
    };
    // The first one loads the scripts, and the subscription that it starts may fall into a later one.
    let (mut ran, mut skipped) = (Vec::new(), Vec::new());
    for round in 0..10 {
        let key = round.to_string();
        for (outcome, rounds) in [("ran", &mut ran), ("skipped", &mut skipped)] {
            let (what, commands) = run(&key).await;
            assert_eq!(what, outcome);
            rounds.push(commands);
        }
    }
    // One EVALSHA writes the record by GET and SET; one releases the lock by GET, PTTL and DEL.
    let expected = counts([
        ("del", 1),
        ("evalsha", 2),
        ("get", 4),
        ("getrange", 1),
        ("pttl", 1),
        ("set", 2),
        ("xadd", 1),
    ]);
    assert_eq!(cheapest(ran), expected);
    assert_eq!(cheapest(skipped), counts([("get", 1)]));
}

/// On a runtime with workers, which polls a task that another one has woken before all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_of_many_tasks_leave_together() {
    const TASKS: u64 = 32;
    const PAIRS: u64 = 20;
    const READS: &str = "total_reads_processed";
    let place = Place::new();
    let client = place.elsewhere().await;
    let before = count(&place.server, READS);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = Arc::clone(&client);
        tasks.spawn(async move {
            for _ in 0..PAIRS {
                pass(&client, &format!("many/{task}")).await;
            }
        });
    }
    tasks.join_all().await;
    let reads = count(&place.server, READS) - before;
    let requests = 2 * TASKS * PAIRS;
    assert!(
        reads < requests / 4,
        "the server read {reads} times for {requests} requests"
    );
}
