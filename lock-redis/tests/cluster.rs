//! Clusters some of whose masters are gone, new or without slots: the others serve, and no list hides a lock.

use lock_testkit::servers::RedisCluster;
use polylock_core::admin::LockEvent;
use polylock_core::{Error, ErrorKind, HealthCheck, Mode, Status};
use polylock_redis::Redis;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, timeout_at};

use crate::health::check_health;
use crate::support::{
    SOON, admin, assert_error, attempt, key, ms, of_cluster, open, pass, release, renewed,
    stays_held, take_long, until,
};

/// A name of a lock that this master has.
fn name_at(cluster: &RedisCluster, master: usize) -> String {
    let mut names = (0..).map(|n| format!("k{n}"));
    let is_there = |name: &String| cluster.owner_of(cluster.slot_of(name)) == master;
    names.find(is_there).expect("each master has slots")
}

async fn list(locks: &Redis) -> Result<Vec<String>, Error> {
    let listed = admin(locks).list("").await?;
    Ok(listed
        .into_iter()
        .map(|info| info.key.to_string())
        .collect())
}

/// Waits for the event of a lock, as its text begins.
async fn event(events: &mut Receiver<LockEvent>, expected: &str) {
    let deadline = Instant::now() + SOON * 4;
    loop {
        let event = timeout_at(deadline, events.recv()).await;
        let event = event.expect("an event").expect("the watch goes on");
        if event.to_string().starts_with(expected) {
            return;
        }
    }
}

async fn assert_others_serve(cluster: &RedisCluster, gone: usize) {
    let config = of_cluster(cluster).with_strict_checks();
    let error = Redis::connect(config).await;
    let error = error.expect_err("the others are checked, and persist nothing");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    let locks = open(of_cluster(cluster)).await;
    pass(&locks, &name_at(cluster, (gone + 1) % 3)).await;
    let error = list(&locks).await.expect_err("a master is missing");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let address = format!("127.0.0.1:{}", cluster[gone].port());
    assert!(error.to_string().contains(&address), "{error}");

    let found = check_health(&cluster.url()).await;
    let of = |id: &str| -> Vec<&HealthCheck> { found.iter().filter(|one| one.id == id).collect() };
    let [nodes] = of("nodes")[..] else {
        panic!("{found:#?}");
    };
    assert_eq!(nodes.status, Status::Error, "{nodes}");
    assert!(nodes.summary.contains("1 of 3 masters"), "{nodes}");
    assert!(nodes.summary.contains(&address), "{nodes}");
    assert_eq!(of("replica").len(), 1, "{found:#?}");
    assert_eq!(of("replica")[0].status, Status::Ok, "{found:#?}");
}

#[tokio::test]
async fn a_master_that_is_dead_or_hangs_costs_new_clients_no_lock_of_another() {
    let cluster = RedisCluster::start(3, 0);
    cluster[1].stop();
    assert_others_serve(&cluster, 1).await;
    cluster[1].resume();
    cluster[1].kill();
    assert_others_serve(&cluster, 1).await;
}

/// Another node may be the master by now, and grant the lock.
#[tokio::test]
async fn a_lock_held_at_a_cluster_that_is_down_is_unavailable_although_it_answers_reads() {
    let cluster = RedisCluster::start(3, 0);
    let name = name_at(&cluster, 0);
    let locks = open(of_cluster(&cluster)).await;
    let guard = take_long(&locks, &name).await;
    for setting in [
        "cluster-allow-reads-when-down yes",
        "cluster-node-timeout 500",
    ] {
        for node in cluster.iter() {
            let words: Vec<_> = ["CONFIG", "SET"]
                .into_iter()
                .chain(setting.split(' '))
                .collect();
            assert!(!node.command(&words).is_error(), "{setting}");
        }
    }
    let is_down = || {
        let info = cluster[0].command(&["CLUSTER", "INFO"]).text();
        info.is_some_and(|info| info.contains("cluster_state:fail"))
    };
    cluster[1].stop();
    cluster[2].stop();
    until("a majority is missing", is_down).await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let attempt = attempt(&name).with_mode(mode);
        let error = assert_error(&locks, &attempt, ErrorKind::Unavailable).await;
        assert!(
            error.to_string().contains("cluster that is down"),
            "{error}"
        );
    }
    let error = guard.renew().await.expect_err("it takes no writes");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    admin(&*locks)
        .inspect(&key(&name))
        .await
        .expect_err("its data may be old");
    cluster[1].resume();
    cluster[2].resume();
    until("they are back", || !is_down()).await;
    renewed(&guard).await;
    release(guard).await;
}

#[tokio::test]
async fn a_watch_and_a_list_follow_a_failover() {
    let cluster = RedisCluster::start(3, 3);
    let (locks, other) = (
        open(of_cluster(&cluster)).await,
        open(of_cluster(&cluster)).await,
    );
    let name = name_at(&cluster, 0);
    let mut events = admin(&*locks).watch("").await.expect("it watches");
    cluster[0].kill();
    cluster.take_over(3);
    let guard = take_long(&other, &name).await;
    event(&mut events, &format!("acquired {name}")).await;
    assert_eq!(list(&locks).await.expect("all masters answer"), [&*name]);
    release(guard).await;
    event(&mut events, &format!("free {name}")).await;
}

/// Its slot goes to a master that had none.
#[tokio::test]
async fn a_lock_whose_slot_moves_to_a_new_master_stays_on_lists() {
    let cluster = RedisCluster::start(3, 0);
    cluster.give_slots(0, 2);
    let locks = open(of_cluster(&cluster)).await;
    let other = open(of_cluster(&cluster)).await;
    let guard = take_long(&other, "a").await;
    assert_eq!(list(&locks).await.expect("it is listed"), ["a"]);
    let mut events = admin(&*locks).watch("").await.expect("it watches");
    cluster.move_slot(cluster.slot_of("a"), 0);
    stays_held(&guard, ms(500)).await;
    assert_eq!(list(&locks).await.expect("it is listed"), ["a"]);
    // Its keys may be missed while they move.
    while events.try_recv().is_ok() {}
    release(guard).await;
    event(&mut events, "free a").await;
    let guard = take_long(&other, "a").await;
    event(&mut events, "acquired a").await;
    release(guard).await;
}

#[tokio::test]
async fn a_list_names_the_lock_whose_slot_is_between_two_masters() {
    let cluster = RedisCluster::start(2, 0);
    let locks = open(of_cluster(&cluster)).await;
    let guards = [take_long(&locks, "a").await, take_long(&locks, "b").await];
    let slot = cluster.slot_of("a");
    let from = cluster.owner_of(slot);
    cluster.begin_move(slot, 1 - from);
    cluster.move_key("a", from, 1 - from);
    let error = list(&locks)
        .await
        .expect_err("its other keys are not there");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.key(), Some(&key("a")), "{error}");
    cluster.end_move(slot, 1 - from);
    assert_eq!(list(&locks).await.expect("it has moved"), ["a", "b"]);
    drop(guards);
}
