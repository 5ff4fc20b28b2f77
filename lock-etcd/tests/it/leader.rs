//! Leaders that are killed, cut off and replaced.

use std::time::Duration;

use lock_testkit::network::Network;
use polylock_core::{DistributedLock, ErrorKind, LostReason, Wait};
use polylock_etcd::EtcdConfig;
use tokio::time::timeout;

use crate::support::{
    EtcdOptions, EtcdServer, Place, SOON, acquire, assert_error, client, config, granted, is_grant,
    is_keep_alive, loss, ms, open, release, request, token, until, waiting,
};

/// A replaced leader acknowledges keep-alives until it notices; that extends no lock for longer than
/// the next leader keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_lost_before_the_next_leader_gives_it_away() {
    let network = Network::new().expect("the tests run as root");
    let hosts = ["a", "b", "c"].map(|name| network.host(name));
    let servers = EtcdServer::cluster_on(&hosts.clone().map(Some), &EtcdOptions::default());
    let (at, former) = leader(&servers).await;
    let others: Vec<usize> = (0..3).filter(|other| *other != at).collect();
    let config = |places: &[usize]| {
        let address = |at: &usize| (hosts[*at].address().to_string(), servers[*at].port());
        EtcdConfig::new(places.iter().map(address))
    };
    let (far, near) = (open(config(&[at])).await, open(config(&others)).await);
    let one = request("a").with_ttl(Duration::from_secs(10));
    let guard = far.acquire(&one).await.expect("it is free");
    let next = waiting(&near, one.with_wait(Wait::AtMost(SOON * 2)));
    // Another client of the leader, which trusts its replies.
    let mut trusting = client(&servers[at]).await;
    let lease = trusting.lease_grant(10, None).await.expect("it is granted");
    let kept = trusting.lease_keep_alive(lease.id()).await;
    let (mut keeper, mut answers) = kept.expect("it is kept alive");

    network.partition(&[&hosts[at]], &[&hosts[others[0]], &hosts[others[1]]]);
    servers[at].stop();
    until("another leader is elected", async || {
        let status = status(&servers[others[0]]).await;
        status.is_some_and(|(leader, _)| leader != 0 && leader != former)
    })
    .await;
    // Longer than what the next leader adds to each lease, an election timeout, and the margin of the lock.
    tokio::time::sleep(ms(5_500)).await;
    // Packets that are sent meanwhile wait in its socket.
    keeper.keep_alive().await.expect("it is sent");
    servers[at].resume();
    let answer = answers.message().await.expect("it answers");
    let ttl = answer.expect("it answers").ttl();
    assert_eq!(ttl, 10, "the former leader renews no lease");

    let next = async {
        let next = granted(next).await;
        (guard.is_held(), next)
    };
    let (reason, (was_held, next)) = tokio::join!(loss(&guard), next);
    assert!(!was_held, "two holders");
    assert_eq!(reason, LostReason::Unreachable);
    assert!(token(&next) > token(&guard));
}

/// A leader that is killed costs no lock, no place in the queue and no order of tokens.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_keep_their_order_when_the_leader_is_killed() {
    let servers = EtcdServer::cluster(&EtcdOptions::default());
    let place = Place::of_all(&servers).await;
    let locks = place.client().await;
    let long = request("a").with_ttl(Duration::from_secs(10));
    let guard = locks.acquire(&long).await.expect("it is free");
    let mut waiters = Vec::new();
    for n in 2..=6 {
        let label = polylock_core::Label::of_this_process().with_note(format!("{n}"));
        waiters.push(place.waiter(&locks, long.clone().with_label(label)).await);
    }
    place.contenders("a", 6).await;
    let (at, _) = leader(&servers).await;
    servers[at].kill();
    tokio::time::sleep(ms(6_000)).await;
    assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
    let mut last = token(&guard);
    release(guard).await;
    for waiter in waiters {
        let next = timeout(SOON, granted(waiter)).await.expect("it is next");
        assert!(token(&next) > last, "served out of order");
        last = token(&next);
        release(next).await;
    }
}

/// Without a majority, no lock is granted and none is held for longer than its ttl; with one again, all
/// goes on.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_no_client_holds_or_is_granted_a_lock() {
    let servers = EtcdServer::cluster(&EtcdOptions::default());
    let place = Place::of_all(&servers).await;
    let locks = place.client().await;
    let guard = acquire(&locks, "a").await;
    let (at, _) = leader(&servers).await;
    let others = || {
        (0..3)
            .filter(|other| *other != at)
            .map(|other| &servers[other])
    };
    others().for_each(|server| server.kill());
    assert_eq!(loss(&guard).await, LostReason::Unreachable);
    let short = request("b").with_wait(Wait::AtMost(ms(500)));
    assert_error(&locks, &short, ErrorKind::Unavailable).await;
    others().for_each(|server| server.restart());
    release(acquire(&locks, "a").await).await;
}

/// A lease of etcd without a key holds no lock: nothing can have been acquired, whatever became of the request.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_that_gets_no_lease_has_a_known_outcome() {
    let place = Place::new().await;
    let behind = config(&[place.counter().port()], place.prefix());
    let locks = open(behind.with_timeout(ms(500)).expect("it is in range")).await;
    let no_leader = "etcdserver: no leader";
    place.counter().refuse(is_grant, "14", no_leader);
    let once = request("a").with_wait(Wait::Never);
    // The reply to the last retry may be late.
    until("an acquisition is refused", async || {
        let error = assert_error(&*locks, &once, ErrorKind::Unavailable).await;
        assert!(!error.is_outcome_unknown(), "{error}");
        error.message().contains(no_leader)
    })
    .await;
}

/// The place of the leader, and its id.
async fn leader(servers: &[EtcdServer]) -> (usize, u64) {
    let mut found = None;
    until("a leader is known", async || {
        for (at, server) in servers.iter().enumerate() {
            if let Some((leader, own)) = status(server).await
                && leader == own
            {
                found = Some((at, own));
            }
        }
        found.is_some()
    })
    .await;
    found.expect("it was found")
}

/// The ids of the leader and of the server itself, if it answers.
async fn status(server: &EtcdServer) -> Option<(u64, u64)> {
    let asked = async {
        let status = client(server).await.status().await.ok()?;
        let own = status.header()?.member_id();
        Some((status.leader(), own))
    };
    timeout(ms(1_000), asked).await.ok().flatten()
}

/// One that was just elected may not know a lease of its predecessor yet, and answers that there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_lease_is_unknown_to_the_next_leader_keeps_its_place() {
    let place = Place::new().await;
    let (locks, other) = (place.counted().await, place.client().await);
    let guard = acquire(&other, "a").await;
    let first = place.waiter(&locks, request("a")).await;
    let second = place.waiter(&other, request("a")).await;
    let line = place.tree().paths("a").await;
    let leases = place.tree().leases("a").await;
    let unknown = "etcdserver: requested lease not found";
    place.counter().refuse(is_keep_alive, "5", unknown);
    place.moved("a", &leases).await;
    place.counter().accept();
    let moved = place.tree().paths("a").await;
    assert_eq!(moved, line, "it is not at its place");
    release(guard).await;
    release(granted(first).await).await;
    release(granted(second).await).await;
}
