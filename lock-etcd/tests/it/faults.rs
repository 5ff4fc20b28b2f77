//! Connections, servers and watches that break.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::PutOptions;
use futures_util::future::join_all;
use lock_testkit::network::Network;
use lock_testkit::proxy::{Direction, Proxy};
use polylock_core::layers::LocalQueue;
use polylock_core::memory::{Fault, Request};
use polylock_core::{
    AcquireRequest, DistributedLock, ErrorKind, LockGuard, LostReason, Mode, Released, Renewal,
    Wait,
};
use polylock_etcd::{Etcd, EtcdConfig};

use crate::support::{
    EtcdOptions, EtcdServer, Place, SOON, TTL, acquire, assert_error, config, granted, is_creation,
    is_grant, is_read, is_renewal, is_revocation, is_watch, is_write, long, loss, ms, open,
    permits, release, renewed, request, token, until, waiting,
};

/// A server that restarts keeps the locks that last for long enough, and tokens grow over it.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_server_costs_no_lock() {
    let server = EtcdServer::start(EtcdOptions::default());
    let place = Place::of(&server).await;
    let locks = place.client().await;
    let long = request("a").with_ttl(Duration::from_secs(15));
    let guard = locks.acquire(&long).await.expect("it is free");
    let waiter = place.waiter(&locks, long.clone()).await;
    server.restart();
    tokio::time::sleep(ms(6_000)).await;
    assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
    let first = token(&guard);
    release(guard).await;
    let next = granted(waiter).await;
    assert!(token(&next) > first);
    release(next).await;
}

/// A waiter whose revision was compacted before its watch began still hears of the end of the holder.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_survives_a_compaction() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let guard = acquire(&*place.client().await, "a").await;
    place.counter().hold(is_watch);
    // It lists again of itself after a third of its ttl, which is later than the test waits.
    let waiter = waiting(&locks, long("a"));
    place.held().await;
    let mut client = place.tree().client();
    let mut revision = 0;
    for _ in 0..3 {
        let put = client.put(format!("{}/other", place.prefix()), "", None);
        let put = put.await.expect("it is written");
        revision = put.header().expect("a header").revision();
    }
    let compacted = client.compact(revision, None).await;
    compacted.expect("it is compacted");
    place.counter().pass();
    release(guard).await;
    let next = tokio::time::timeout(SOON, granted(waiter)).await;
    release(next.expect("it hears of the end")).await;
}

/// A watch does not report an outage. The queue of the process has one attempt for all of its waiters, which
/// outlasts their waits.
async fn waits_in_an_outage(wait: Duration, fail: impl FnOnce(&Proxy)) {
    let place = Place::new().await;
    let proxy = Proxy::of_bytes(place.counter().port());
    let behind = config(&[proxy.port()], place.prefix());
    // A list under way outlasts the waits.
    let patient = behind.with_timeout(Duration::from_secs(60));
    let locks = open(patient.expect("it is in range")).await;
    let inner: Arc<dyn DistributedLock> = Arc::<Etcd>::clone(&locks);
    let queue = Arc::new(LocalQueue::new(inner));
    let other = place.client().await;
    let mut holders = Vec::new();
    for name in ["a", "b"] {
        holders.push(other.acquire(&long(name)).await.expect("it is free"));
    }
    let within = |name| long(name).with_wait(Wait::AtMost(wait));
    let waiters = [waiting(&locks, within("a")), waiting(&queue, within("b"))];
    until("both watch", async || place.counter().seen(is_watch) >= 2).await;
    fail(&proxy);
    for waiter in waiters {
        let refused = waiter.await.expect("no panic");
        let error = refused.expect_err("two holders");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    proxy.cut();
    proxy.resume(Direction::Both);
    proxy.accept();
    for (holder, name) in holders.into_iter().zip(["a", "b"]) {
        release(holder).await;
        place.assert_nothing_left(&[&locks], name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_in_an_outage_is_no_contention() {
    let fail = |proxy: &Proxy| {
        proxy.refuse();
        proxy.cut();
    };
    waits_in_an_outage(SOON, fail).await;
}

/// The client pings a silent server after 10 s, and waits 2 s for the reply.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_in_silence_is_no_contention() {
    waits_in_an_outage(SOON * 2, |proxy| proxy.hold(Direction::Both)).await;
}

/// The waiter hears nothing of the outage before the end of its wait: the proxy replies to its pings.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_on_the_watch_of_a_silent_server_is_no_contention() {
    let server = EtcdServer::start(EtcdOptions::default());
    let place = Place::of(&server).await;
    let (locks, other) = (place.counted().await, place.client().await);
    let holder = other.acquire(&long("a")).await.expect("it is free");
    let waiter = waiting(&locks, long("a").with_wait(Wait::AtMost(SOON)));
    until("it watches", async || place.counter().seen(is_watch) >= 1).await;
    server.stop();
    let refused = waiter.await.expect("no panic");
    let error = refused.expect_err("two holders");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.resume();
    release(holder).await;
    place.assert_nothing_left(&[&locks], "a").await;
}

/// The list at the end of the wait takes longer than the least that an attempt has.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_behind_a_holder_at_a_slow_server_ends_in_contention() {
    let place = Place::new().await;
    let locks = place.behind_proxy().await;
    let other = place.client().await;
    let holder = other.acquire(&long("a")).await.expect("it is free");
    place.proxy().set_latency(Direction::Requests, ms(300));
    let short = long("a").with_wait(Wait::AtMost(ms(3_000)));
    // A busy machine may take even longer.
    until("the reply still counts", async || {
        let refused = locks.acquire(&short).await;
        refused.expect_err("two holders").kind() == ErrorKind::Contended
    })
    .await;
    place.proxy().set_latency(Direction::Requests, ms(0));
    release(holder).await;
    place.assert_nothing_left(&[&locks], "a").await;
}

/// The last list shows that the waiter holds the lock, at the end of its wait. What follows takes longer than the
/// least that an attempt has: the renewal of a lock that is renewed by hand, and the write of a permit.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_with_a_grant_at_a_slow_server_is_granted() {
    let place = Place::new().await;
    let proxy = Proxy::of_bytes(place.counter().port());
    let locks = open(config(&[proxy.port()], place.prefix())).await;
    let other = place.client().await;
    let by_hand = long("a").with_renewal(Renewal::Manual);
    for request in [by_hand, long("a").with_mode(permits(1))] {
        let short = request.clone().with_wait(Wait::AtMost(ms(2_000)));
        // A busy machine may take even longer.
        until("the replies still count", async || {
            let holder = other.acquire(&request).await.expect("it is free");
            proxy.set_latency(Direction::Requests, ms(300));
            place.counter().hold(is_read);
            let waiter = waiting(&locks, short.clone());
            until("the last list is held", async || {
                place.counter().is_holding() || waiter.is_finished()
            })
            .await;
            release(holder).await;
            place.counter().pass();
            let acquired = waiter.await.expect("no panic");
            proxy.set_latency(Direction::Requests, ms(0));
            match acquired {
                Ok(guard) => {
                    release(guard).await;
                    true
                }
                Err(_) => false,
            }
        })
        .await;
    }
    place.assert_nothing_left(&[&locks], "a").await;
}

/// A network that loses everything for a while costs neither the lock nor the place in the queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_network_is_survived_for_less_than_the_ttl() {
    let place = Place::new().await;
    let locks = place.behind_proxy().await;
    let long = |name| request(name).with_ttl(Duration::from_secs(15));
    let held = locks.acquire(&long("held")).await.expect("it is free");
    let elsewhere = place.client().await;
    let guard = acquire(&elsewhere, "waited").await;
    let waiter = place.waiter(&locks, long("waited")).await;
    place.proxy().hold(Direction::Both);
    release(guard).await;
    tokio::time::sleep(ms(4_000)).await;
    place.proxy().cut();
    place.proxy().resume(Direction::Both);
    release(granted(waiter).await).await;
    release(held).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_dropped_in_an_outage_leaves_no_key() {
    let place = Place::new().await;
    let locks = place.behind_proxy().await;
    release(acquire(&locks, "warm").await).await;
    for (direction, then) in [(Direction::Requests, "late"), (Direction::Replies, "done")] {
        place.proxy().hold(direction);
        let waiter = waiting(&locks, request("a"));
        tokio::time::sleep(ms(100)).await;
        waiter.abort();
        tokio::time::sleep(ms(100)).await;
        place.proxy().resume(direction);
        until(&format!("no key is left: {then}"), async || {
            locks.shutdown(SOON).await && place.tree().line("a").await.is_empty()
        })
        .await;
        place.assert_nothing_left(&[&locks], "a").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_that_is_lost_happens_once() {
    let place = Place::new().await;
    let locks = place.behind_proxy().await;
    let long = request("a").with_ttl(Duration::from_secs(15));
    let mut guard = locks.acquire(&long).await.expect("it is free");
    let first = token(&guard);
    place.proxy().hold(Direction::Replies);
    let downgraded = tokio::spawn(async move {
        let done = guard.downgrade().await;
        (guard, done)
    });
    until("the key is that of a reader", async || {
        place.tree().line("a").await[0].contains("=shared&")
    })
    .await;
    place.proxy().cut();
    place.proxy().resume(Direction::Replies);
    let (guard, done) = downgraded.await.expect("no panic");
    done.expect("it is downgraded");
    assert_eq!(token(&guard), first);
    let reader = request("a").with_mode(Mode::Shared);
    let reader = place.client().await.acquire(&reader).await;
    release(reader.expect("it is shared")).await;
    release(guard).await;
}

/// A downgrade that a full database refuses may come later: a renewal that moves the key writes the mode too.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_that_is_refused_may_come_with_a_renewal() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let mut first = locks.acquire(&long("first")).await.expect("it is free");
    let mut guard = locks.acquire(&long("a")).await.expect("it is free");
    place.counter().fill(is_write);
    first.downgrade().await.expect("it reaches the quota");
    let error = guard.downgrade().await.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    place.counter().make_space();
    guard.renew_for(SOON * 12).await.expect("it is extended");
    assert!(place.tree().line("a").await[0].contains("=shared&"));
    release(guard).await;
    release(first).await;
}

/// A full database does not hide that the key of a holder is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_without_its_key_is_a_loss_although_the_database_is_full() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let mut first = locks.acquire(&long("first")).await.expect("it is free");
    let mut guard = locks.acquire(&long("a")).await.expect("it is free");
    place.counter().fill(is_write);
    first.downgrade().await.expect("it reaches the quota");
    place.tree().delete("a", 0).await;
    let error = guard.downgrade().await.expect_err("its key is gone");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    release(first).await;
}

/// The deletion or a `break` before it may have removed the key. A request that was lost is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_an_answer_that_finds_nothing_has_an_unknown_outcome() {
    let place = Place::new().await;
    let locks = place.counted().await;
    // A release has a third of it, and waits 2 s for the reply of a server.
    let long = request("a").with_ttl(Duration::from_secs(12));
    for fault in [Fault::LostReply, Fault::LostRequest] {
        let guard = locks.acquire(&long).await.expect("it is free");
        place.counter().plan(Request::Release, fault);
        let released = guard.release().await;
        if fault == Fault::LostReply {
            let error = released.expect_err("nothing was answered");
            assert!(error.message().contains("did not reply"), "{error}");
            assert!(error.is_outcome_unknown(), "{error}");
        } else {
            assert_eq!(released.expect("it is repeated"), Released::Clean);
        }
        // The release in the background ends as well.
        place.assert_nothing_left(&[&locks], "a").await;
    }
}

/// A renewal that is under way finds that the key is gone, before the reply to its deletion.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_an_answer_whose_key_is_found_gone_has_an_unknown_outcome() {
    let place = Place::new().await;
    let locks = place.counted().await;
    // A release has a third of it, and waits 2 s for the reply of a server.
    let long = request("a").with_ttl(Duration::from_secs(12));
    let guard = locks.acquire(&long).await.expect("it is free");
    place.counter().hold(is_renewal);
    place.held().await;
    let late = Fault::LateReply(Duration::from_secs(3));
    place.counter().plan(Request::Release, late);
    let released = tokio::spawn(guard.release());
    place.contenders("a", 0).await;
    place.counter().pass();
    let released = released.await.expect("no panic");
    let error = released.expect_err("nothing was answered");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    assert!(
        error.message().contains("the key of the lock is gone"),
        "{error}"
    );
    // The release in the background ends as well.
    place.assert_nothing_left(&[&locks], "a").await;
}

/// The reply to an adoption comes after a retry has adopted the lock: it ends neither the lock nor the lease of
/// etcd that the retry has attached it to.
#[tokio::test(flavor = "multi_thread")]
async fn an_adoption_whose_reply_comes_after_its_retry_is_kept() {
    let place = Place::new().await;
    let (holder, locks) = (place.client().await, place.counted().await);
    let ticket = acquire(&holder, "a").await.into_ticket();
    let ticket = ticket.expect("a lease can be left");
    // One attempt has a third of the ttl, which is less.
    let late = Fault::LateReply(ms(1_500));
    place.counter().plan(Request::Adopt, late);
    let guard = locks.acquire(&AcquireRequest::adopting(&ticket)).await;
    let guard = guard.expect("the retry adopts it");
    // Until the late reply has come, and the lease of one of the two attempts is revoked.
    assert!(locks.shutdown(SOON).await, "the first attempt does not end");
    let revoked = place.counter().seen(is_revocation);
    assert!(revoked >= 1, "no lease of an earlier attempt is revoked");
    assert_eq!(place.tree().line("a").await.len(), 1, "it is free");
    let attempt = request("a").with_wait(Wait::Never);
    assert_error(&*holder, &attempt, ErrorKind::Contended).await;
    release(guard).await;
}

/// A renewal moves an adopted lock, a late attempt of the adoption moves it again, and the reply to the renewal
/// comes last: the lease of etcd that the lock has by then is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_whose_reply_comes_after_a_late_adoption_is_kept() {
    let place = Place::new().await;
    let (holder, locks) = (place.client().await, place.counted().await);
    let ticket = acquire(&holder, "a").await.into_ticket();
    let ticket = ticket.expect("a lease can be left");
    place.counter().hold(|_, kind| kind == Some(Request::Adopt));
    // One attempt has a third of the ttl, and its write goes on after that.
    let guard = locks.acquire(&AcquireRequest::adopting(&ticket)).await;
    let guard = guard.expect("the retry adopts it");
    let former = place.tree().leases("a").await;
    // A renewal has a fifth of the ttl.
    let late = Fault::LateReply(ms(400));
    place.counter().plan(Request::Adopt, late);
    let cross = async {
        place.moved("a", &former).await;
        place.counter().pass();
    };
    let extension = guard.renew_for(Duration::from_secs(300));
    let (extended, ()) = tokio::join!(extension, cross);
    // On a busy machine it has no reply in its time, and the engine renews the lock later.
    drop(extended);
    assert!(locks.shutdown(SOON).await, "the first attempt does not end");
    assert_eq!(place.tree().line("a").await.len(), 1, "it is free");
    release(guard).await;
}

/// Each renewal takes more than half of the ttl, so that no listing is fresh. The request ends all the same, and
/// leaves the lock to others.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_wait_ends_at_a_slow_cluster() {
    let place = Place::new().await;
    let behind = config(&[place.proxy().port()], place.prefix()).with_timeout(ms(5_000));
    let locks = open(behind.expect("it is in range")).await;
    for direction in [Direction::Requests, Direction::Replies] {
        place.proxy().set_latency(direction, ms(700));
    }
    // A keep-alive and a read take 2.8 s.
    let slow = request("a").with_ttl(Duration::from_secs(4));
    let slow = slow.with_wait(Wait::Never);
    let ended = tokio::time::timeout(SOON * 2, locks.acquire(&slow)).await;
    drop(ended.expect("it ends"));
    release(acquire(&*place.client().await, "a").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_key_is_deleted_goes_to_the_end_of_the_queue() {
    let place = Place::new().await;
    let locks = place.client().await;
    let guard = acquire(&locks, "a").await;
    let first = place.waiter(&locks, request("a")).await;
    let second = place.waiter(&locks, request("a")).await;
    place.tree().delete("a", 1).await;
    place.contenders("a", 3).await;
    release(guard).await;
    let second = granted(second).await;
    assert!(!first.is_finished(), "two holders");
    let last = token(&second);
    release(second).await;
    let first = granted(first).await;
    assert!(token(&first) > last);
    release(first).await;
}

/// A server that hangs with a request is left for another; the request that it comes to later is undone.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_left_for_another() {
    let servers = EtcdServer::cluster(&EtcdOptions::default());
    let place = Place::of_all(&servers).await;
    let locks = place.client().await;
    // Its lease is granted: what hangs is the request that creates a key.
    let kept = acquire(&locks, "kept").await;
    // The client begins with the first one.
    servers[0].stop();
    let begun = tokio::time::Instant::now();
    let guard = acquire(&locks, "a").await;
    let elapsed = begun.elapsed();
    assert!(
        elapsed < Duration::from_secs(8),
        "granted after {elapsed:?}"
    );
    release(guard).await;
    servers[0].resume();
    let other = place.client().await;
    release(acquire(&other, "a").await).await;
    place.assert_nothing_left(&[&locks], "a").await;
    drop(kept);
}

/// The start does not wait for a server that hangs for longer than the first reply may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_does_not_fail_the_start() {
    let servers = EtcdServer::cluster(&EtcdOptions::default());
    let place = Place::of_all(&servers).await;
    let locks = place.client().await;
    // The client begins with the first one.
    servers[0].stop();
    // The others have a leader then.
    release(acquire(&locks, "a").await).await;
    // Two requests to the server that hangs take longer.
    let short = place.config().with_connect_timeout(ms(3_900));
    let started = open(short.expect("it is in range")).await;
    release(acquire(&started, "a").await).await;
    // One request takes longer. Without the server that hangs, a busy machine may do so as well.
    let shorter = place.config().with_connect_timeout(ms(1_900));
    let shorter = shorter.expect("it is in range");
    until("a client starts in less time", async || {
        Etcd::connect(shorter.clone()).await.is_ok()
    })
    .await;
    servers[0].resume();
}

/// A server that is cut off from the others refuses, and the client goes to one that has a leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_leader_is_left_for_another() {
    let network = Network::new().expect("the tests run as root");
    let hosts = ["a", "b", "c"].map(|name| network.host(name));
    let servers = EtcdServer::cluster_on(&hosts.clone().map(Some), &EtcdOptions::default());
    let address = |at: usize| (hosts[at].address().to_string(), servers[at].port());
    let locks = open(EtcdConfig::new((0..3).map(address))).await;
    let long = |name| request(name).with_ttl(Duration::from_secs(15));
    let guard = locks.acquire(&long("kept")).await.expect("it is free");
    network.partition(&[&hosts[0]], &[&hosts[1], &hosts[2]]);
    release(locks.acquire(&long("a")).await.expect("it is free")).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    release(guard).await;
}

/// A key that is created after the release of its lock ends with its lease of etcd, also beside locks that
/// are renewed.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_created_after_the_release_ends() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let kept = acquire(&locks, "kept").await;
    place.counter().hold(is_creation);
    // A held call is retried after 2 s.
    let guard = acquire(&locks, "a").await;
    release(guard).await;
    place.counter().pass();
    place.contenders("a", 1).await;
    place.contenders("a", 0).await;
    release(kept).await;
}

/// A holder's key that is deleted, and created again by a late request, is not the lock: it has another
/// token.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_created_again_is_not_the_lock() {
    let place = Place::new().await;
    let locks = place.counted().await;
    release(acquire(&locks, "warm").await).await;
    place.counter().hold(is_creation);
    let guard = acquire(&locks, "a").await;
    place.tree().delete("a", 0).await;
    place.counter().pass();
    place.contenders("a", 1).await;
    let reason = loss(&guard).await;
    assert!(
        matches!(reason, LostReason::Broken | LostReason::Stolen),
        "{reason:?}"
    );
    place.contenders("a", 0).await;
}

/// A waiter's key that is deleted, and created again by a late request, is not its place in the queue: contenders
/// that came between the two have larger tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_key_is_created_again_has_a_larger_token_than_those_before_it() {
    let place = Place::new().await;
    let (locks, late) = (place.client().await, place.counted().await);
    let guard = acquire(&locks, "a").await;
    let slow = request("a").with_ttl(SOON / 2);
    let waiter = place.waiter(&late, slow).await;
    // It lists the queue once it hears of the deletion.
    place.counter().hold(is_read);
    let tree = place.tree();
    let (mut paths, mut values) = (tree.paths("a").await, tree.line("a").await);
    let (path, value) = (paths.remove(1), values.remove(1));
    let lease = tree.leases("a").await[1];
    tree.delete("a", 1).await;
    place.held().await;
    let next = place.waiter(&locks, request("a")).await;
    // As a request does that was sent earlier.
    let options = PutOptions::new().with_lease(lease);
    let put = tree.client().put(path, value, Some(options)).await;
    put.expect("it is written");
    place.counter().pass();
    release(guard).await;
    let next = granted(next).await;
    let last = token(&next);
    release(next).await;
    let waiter = granted(waiter).await;
    assert!(token(&waiter) > last);
    release(waiter).await;
}

/// etcd executes the request that reaches the quota of its database, and then answers that it is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_creation_reaches_the_quota_is_not_left() {
    let place = Place::new().await;
    let locks = place.counted().await;
    // Its renewals would keep the key alive.
    let kept = locks.acquire(&long("kept")).await.expect("it is free");
    place.counter().fill(is_creation);
    let guard = locks.acquire(&long("a")).await.expect("it is granted");
    release(guard).await;
    place.contenders("a", 0).await;
    // A key that cannot be read is deleted as well, if there is one.
    place.counter().fill(is_creation);
    for outcome in ["created", "refused"] {
        place.counter().hold(is_read);
        let (reads, deletions) = (place.counter().seen(is_read), place.count(Request::Release));
        let waiter = waiting(&locks, long("a"));
        until("the key is read", async || {
            place.counter().seen(is_read) > reads
        })
        .await;
        waiter.abort();
        // If it was granted the lock before, its guard is dropped here.
        drop(waiter);
        until(&format!("the key is deleted: {outcome}"), async || {
            place.count(Request::Release) > deletions
        })
        .await;
        place.contenders("a", 0).await;
        place.counter().pass();
        assert!(locks.shutdown(SOON).await, "the release does not end");
    }
    // No request may still arrive, and the locks keep the lease of etcd that they share.
    place.counter().make_space();
    let next = locks.acquire(&long("b")).await.expect("it is free");
    let lease = place.tree().leases("kept").await;
    assert_eq!(place.tree().leases("b").await, lease);
    release(next).await;
    release(kept).await;
}

/// A creation that a full database refuses has no effect, and the error names the reason.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_that_a_full_database_refuses_has_a_known_outcome() {
    let place = Place::new().await;
    let locks = place.counted().await;
    // The next lock shares its lease of etcd.
    let kept = locks.acquire(&long("kept")).await.expect("it is free");
    place.counter().fill(is_creation);
    let guard = locks.acquire(&long("a")).await.expect("it is granted");
    release(guard).await;
    let short = long("a").with_wait(Wait::AtMost(ms(300)));
    until("a wait ends between two requests", async || {
        let error = assert_error(&locks, &short, ErrorKind::Unavailable).await;
        // One that ends during a request has an unknown outcome.
        let is_known = !error.is_outcome_unknown();
        assert!(
            !is_known || error.message().contains("takes no writes"),
            "{error}"
        );
        is_known
    })
    .await;
    release(kept).await;
}

/// A waiter whose wait ends in the queue of the process learns what etcd has answered last.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_at_a_full_database_ends_with_its_refusal() {
    for refused in [is_grant, is_creation] {
        let place = Place::new().await;
        let locks = LocalQueue::new(place.counted().await);
        place.counter().fill(refused);
        // The first request is executed, and its lock released.
        let first = locks
            .acquire(&long("a").with_wait(Wait::AtMost(ms(300))))
            .await;
        drop(first);
        for wait in [300, 2_000, 2_500] {
            let waits = long("b").with_wait(Wait::AtMost(ms(wait)));
            let error = assert_error(&locks, &waits, ErrorKind::Unavailable).await;
            assert!(error.message().contains("takes no writes"), "{error}");
        }
    }
}

/// An acquisition that a full database refuses a lease of etcd repeats that request. A renewal that needs one too
/// is not kept from its own request by that.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_at_a_full_database_costs_no_held_lock() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let (left, kept) = (acquire(&locks, "left").await, acquire(&locks, "kept").await);
    let lease = place.tree().leases("kept").await;
    assert_eq!(place.tree().leases("left").await, lease);
    place.counter().fill(is_grant);
    // Its neighbor has to move to another lease.
    left.abandon();
    let refusals = place.counter().seen(is_grant);
    let waiter = waiting(&locks, request("a"));
    until("the acquisition is refused", async || {
        place.counter().seen(is_grant) > refusals + 1
    })
    .await;
    tokio::time::sleep(TTL * 2).await;
    assert!(kept.is_held(), "lost: {:?}", kept.lost().reason());
    place.counter().make_space();
    release(granted(waiter).await).await;
    release(kept).await;
}

/// A renewal that needs another lease of etcd does not wait for an acquisition whose request for one has no
/// reply.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_does_not_wait_for_the_lease_of_an_acquisition() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let mut round = 0;
    // The client gives up a held request after 2 s.
    until("a lock is renewed before that", async || {
        round += 1;
        let long = |name: &str| long(&format!("{name}{round}"));
        let left = locks.acquire(&long("left")).await.expect("it is free");
        let kept = locks.acquire(&long("kept")).await.expect("it is free");
        // Its neighbor has to move to another lease.
        left.abandon();
        place.counter().hold(is_grant);
        let waiter = waiting(&locks, long("a"));
        place.held().await;
        renewed(&kept).await;
        let is_in_time = place.counter().is_holding();
        place.counter().pass();
        release(granted(waiter).await).await;
        release(kept).await;
        is_in_time
    })
    .await;
}

/// Locks that have to move to another lease of etcd at a full database are refused it together. One by one, the
/// last of many would have no time left to be renewed on the lease that it has.
#[tokio::test(flavor = "multi_thread")]
async fn locks_that_a_full_database_refuses_a_lease_are_refused_together() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let left = locks.acquire(&long("left")).await.expect("it is free");
    let mut guards = Vec::new();
    for n in 0..40 {
        let long = long(&format!("a{n}"));
        guards.push(locks.acquire(&long).await.expect("it is free"));
    }
    place.counter().fill(is_grant);
    left.abandon();
    let before = place.counter().seen(is_grant);
    // The first request is held until all of them are waiting.
    place.counter().hold(is_grant);
    let pass = async {
        place.held().await;
        place.counter().pass();
    };
    let renewals = join_all(guards.iter().map(LockGuard::renew));
    tokio::join!(renewals, pass);
    let requests = place.counter().seen(is_grant) - before;
    assert!((1..=10).contains(&requests), "{requests} for 40 locks");
    for guard in guards {
        release(guard).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_lose_their_connection_make_one() {
    let place = Place::new().await;
    let locks = place.behind_proxy().await;
    release(acquire(&locks, "warm").await).await;
    place.proxy().hold(Direction::Replies);
    let waiters: Vec<_> = (0..40)
        .map(|n| waiting(&locks, request(&format!("a{n}"))))
        .collect();
    place.contenders("a39", 1).await;
    let before = place.proxy().connections();
    place.proxy().cut();
    place.proxy().resume(Direction::Replies);
    for waiter in waiters {
        release(granted(waiter).await).await;
    }
    let connections = place.proxy().connections() - before;
    assert!((1..=4).contains(&connections), "{connections} connections");
}

/// The keep-alives of a connection that broke end with it, and cost the next connection nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_after_a_reconnect_keeps_the_connection() {
    let place = Place::new().await;
    let locks = place.behind_proxy().await;
    let guard = locks.acquire(&long("a")).await.expect("it is free");
    renewed(&guard).await;
    place.proxy().hold(Direction::Replies);
    let waiter = waiting(&locks, long("b"));
    place.contenders("b", 1).await;
    place.proxy().cut();
    place.proxy().resume(Direction::Replies);
    release(granted(waiter).await).await;
    let before = place.proxy().connections();
    renewed(&guard).await;
    assert_eq!(place.proxy().connections(), before);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_without_a_listener_is_unavailable() {
    // No name has such a long part, so that the system refuses it without a server of names.
    let name = "x".repeat(64);
    let named = EtcdConfig::new([(name.as_str(), 1)]);
    let unresolved = format!("no answer from {name}:1: the name {name} does not resolve");
    for (config, says) in [
        (config(&[1], "locks"), "no answer from 127.0.0.1:1: etcd "),
        (named, unresolved.as_str()),
    ] {
        let config = config.with_connect_timeout(ms(500));
        let refused = Etcd::connect(config.expect("it is in range")).await;
        let error = refused.expect_err("no server listens");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.message().starts_with(says), "{error}");
        assert!(!error.is_outcome_unknown(), "{error:?}");
        // Without `Debug` output of the client.
        let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
        assert!(
            !causes.any(|cause| cause.to_string().contains("Error(")),
            "{error:?}"
        );
    }
}
