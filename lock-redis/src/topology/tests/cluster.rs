use lock_testkit::servers::{RedisCluster, RedisServer};
use polylock_core::engine::LeaseId;
use polylock_core::{ErrorKind, LeaseState, LockKey, RenewalRequest};

use super::*;
use crate::server::Server;

#[tokio::test]
async fn keys_are_found_from_any_node() {
    let cluster = RedisCluster::start(3, 0);
    for port in cluster.ports() {
        let (topology, told) = open(&by_url(&format!("redis-cluster://127.0.0.1:{port}"))).await;
        for n in 0..60 {
            count(&*topology, &format!("key-{n}")).await.unwrap();
        }
        assert_eq!(
            topology.scan(b"key-*", Duration::ZERO).await.unwrap().len(),
            60
        );
        assert_eq!(topology.masters().await.unwrap().len(), 3);
        assert_eq!(told.moved.load(Ordering::SeqCst), 0);
    }
    let (topology, _) = open(&by_url(&cluster.url())).await;
    assert_eq!(count(&*topology, "key-7").await.unwrap(), 4);
}

#[tokio::test]
async fn messages_are_heard_through_any_node_and_after_its_end() {
    let cluster = RedisCluster::start(3, 0);
    let (topology, told) = open(&by_url(&cluster.url())).await;
    assert_eq!(topology.subscribed(), None);
    let channel = topology.channel().await.unwrap().unwrap();
    assert_eq!(topology.subscribed().as_ref(), Some(&channel));
    for (at, node) in cluster.iter().enumerate() {
        let message = format!("from {at}");
        // Nodes that have not connected to each other yet lose it.
        until("a message", || {
            node.command(&["PUBLISH", &*channel, &message]);
            told.has(message.as_bytes())
        })
        .await;
    }

    let hears = |node: &RedisServer| {
        let count = node.command(&["PUBSUB", "NUMSUB", &*channel]);
        count.items()[1].integer() == Some(1)
    };
    let pubsub = cluster.iter().position(hears).unwrap();
    cluster[pubsub].stop();
    until("deafness", || told.deaf.load(Ordering::SeqCst) == 1).await;
    assert_eq!(
        topology.channel().await.unwrap(),
        Some(Arc::clone(&channel))
    );
    let other = (pubsub + 1) % 3;
    cluster[other].command(&["PUBLISH", &*channel, "again"]);
    until("a message", || told.has(b"again")).await;
    cluster[pubsub].resume();
}

#[tokio::test]
async fn a_user_who_may_not_publish_has_no_channel_and_is_notified_of_broken_locks() {
    let cluster = RedisCluster::start(3, 0);
    let user = "ACL SETUSER locks on >secret ~* &* +@all -publish";
    for node in cluster.iter() {
        node.command(&user.split(' ').collect::<Vec<_>>());
    }
    let config = by_url(&cluster.url()).with_login("locks", "secret");
    let (topology, told) = open(&config).await;
    assert_eq!(topology.channel().await.unwrap(), None);
    assert_eq!(topology.subscribed(), None);
    until("a message", || {
        cluster[0].command(&["PUBLISH", "polylock:broken", "broken"]);
        told.has(b"broken")
    })
    .await;
    assert_eq!(topology.channel().await.unwrap(), None);
}

#[tokio::test]
async fn a_slot_that_moves_is_followed() {
    let cluster = RedisCluster::start(2, 0);
    let (topology, told) = open(&by_url(&cluster.url())).await;
    count(&*topology, "a").await.unwrap();
    let slot = cluster.slot_of("a");
    let (from, to) = (cluster.owner_of(slot), 1 - cluster.owner_of(slot));

    cluster.begin_move(slot, to);
    assert_eq!(count(&*topology, "a").await.unwrap(), 2, "still there");
    cluster.move_key("a", from, to);
    assert_eq!(
        count(&*topology, "a").await.unwrap(),
        3,
        "by ASK, with a script unknown there"
    );
    assert_eq!(count(&*topology, "a").await.unwrap(), 4, "by ASK");
    let acked = Call::script(&COUNT, &[b"a"], &[]);
    let wait = Some((0, Duration::from_millis(10)));
    let done = topology.call(Call { wait, ..acked }).await.unwrap();
    assert_eq!((done.value, done.acked), (redis::Value::Int(5), 0));
    cluster.end_move(slot, to);
    for node in cluster.iter() {
        // The next redirection names no host.
        let name = "cluster-preferred-endpoint-type";
        let set = node.command(&["CONFIG", "SET", name, "unknown-endpoint"]);
        assert!(!set.is_error(), "{set:?}");
    }
    assert_eq!(count(&*topology, "a").await.unwrap(), 6, "by MOVED");
    assert_eq!(count(&*topology, "a").await.unwrap(), 7);
    assert_eq!(told.moved.load(Ordering::SeqCst), 0, "no data is lost");
}

/// One after the other, they would take longer than a renewal may.
#[tokio::test]
async fn renewals_wait_for_the_replicas_of_a_server_together() {
    const ID: &str = "000102030405060708090a0b0c0d0e0f";
    let cluster = RedisCluster::start(3, 3);
    let nodes = cluster.ports().iter().map(|port| ("127.0.0.1", *port));
    let config = patient(RedisConfig::cluster(nodes));
    let config = config.with_replica_acks(1, Duration::from_millis(500));
    let config = config.expect("it is in range");
    let (topology, _) = open(&config).await;
    let server = Server::new(topology, &config);
    let due = |n| {
        let key = LockKey::new(format!("k{n}")).unwrap();
        RenewalRequest::new(key, LeaseId::from_hex(ID).unwrap(), LONG_TTL)
    };
    let due: Vec<_> = (0..60).map(due).collect();
    let holder = format!("{ID}|label");
    // Every third lease is lost.
    for (_, one) in due.iter().enumerate().filter(|(n, _)| n % 3 > 0) {
        let key = one.key.as_str();
        let owner = &cluster[cluster.owner_of(cluster.slot_of(key))];
        let set = owner.command(&["SET", key, &*holder, "PX", "900000"]);
        assert!(!set.is_error(), "{set:?}");
    }
    for (what, has_acks) in [("all are renewed", true), ("all lack their acks", false)] {
        if !has_acks {
            cluster[3..].iter().for_each(|replica| replica.stop());
        }
        // A busy machine may need another round.
        lock_testkit::locks::until(what, async || {
            let states = server.renew(&due, &|_, _| (), &|_| None).await;
            let mut states = states.into_iter().enumerate();
            states.all(|(n, state)| match (n % 3, state) {
                (0, state) => matches!(state, Ok(LeaseState::Lost(_))),
                (_, Ok(state)) => has_acks && state == LeaseState::Held,
                (_, Err(failure)) => {
                    !has_acks && matches!(failure.cause, RedisCause::Unacknowledged { .. })
                }
            })
        })
        .await;
    }
}

/// Of a lease whose renewal may take 3.75 s.
const LONG_TTL: Duration = Duration::from_secs(900);

#[tokio::test]
async fn half_a_cluster_is_down() {
    let cluster = RedisCluster::start(2, 0);
    let (topology, _) = open(&by_url(&cluster.url())).await;
    let slot = cluster.slot_of("a");
    let owner = cluster.owner_of(slot);
    cluster[owner].command(&["CLUSTER", "DELSLOTS", &slot.to_string()]);
    let begun = Instant::now();
    let failure = count(&*topology, "a").await.unwrap_err();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3), "a call takes {took:?}");
    assert!(!failure.outcome_unknown, "{failure:?}");
    assert_eq!(Error::from(failure).kind(), ErrorKind::Unavailable);
    cluster[owner].command(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
    assert!(count_in_time(&*topology, "a").await >= 1);
}

/// Otherwise it would hear nothing that the others publish.
#[tokio::test]
async fn a_subscription_leaves_a_node_that_is_removed() {
    let cluster = RedisCluster::start(3, 0);
    let (topology, told) = open(&by_url(&cluster.url())).await;
    let channel = topology.channel().await.unwrap().unwrap();
    let hears = |node: &RedisServer| {
        let count = node.command(&["PUBSUB", "NUMSUB", &*channel]);
        count.items()[1].integer() == Some(1)
    };
    assert!(hears(&cluster[0]), "it is the first of the map");
    cluster.give_slots(0, 2);
    cluster.forget(0);
    until("it leaves", || !hears(&cluster[0])).await;
    until("a message", || {
        cluster[1].command(&["PUBLISH", &*channel, "here"]);
        told.has(b"here")
    })
    .await;
    assert!(!hears(&cluster[0]), "it comes back");
}
