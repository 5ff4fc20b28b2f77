//! Failovers and moving slots: replicated locks are kept, and losses are noticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use lock_testkit::history::{Checker, Recorder};
use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{RedisCluster, RedisOptions, RedisSentinels, RedisServer};
use polylock_core::admin::Record;
use polylock_core::{AcquireRequest, DistributedLock, ErrorKind, Mode, Renewal};
use polylock_redis::{Redis, RedisConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{
    SOON, TTL, acquire, admin, any_id, assert_error, assert_replaced, attempt, commands, count,
    follow, granted, info, inspect, key, look, ms, noted, noted_waiters, of, of_cluster,
    of_sentinels, open, pass, release, renewed, request, stays_held, take, take_long, until,
    waiting, with_acks, within,
};

/// A failover takes seconds.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A lease that outlasts a failover, and several renewals.
fn long(name: &str) -> AcquireRequest {
    lasting(name, TTL * 30)
}

fn lasting(name: &str, ttl: Duration) -> AcquireRequest {
    within(request(name).with_ttl(ttl), TIMEOUT)
}

/// Cuts the replica off from its master.
fn cut_off(master: &RedisServer, replica: &RedisServer) {
    replica.stop();
    // Otherwise it would read its socket's buffer when it goes on.
    assert_eq!(
        master
            .command(&["CLIENT", "KILL", "TYPE", "replica"])
            .integer(),
        Some(1)
    );
}

/// The master forgot the lock in `fail_over`: there are two holders for a while, as documented.
async fn assert_lost(config: RedisConfig, ttl: Duration, fail_over: impl FnOnce()) {
    let (locks, other) = (open(config.clone()).await, open(config).await);
    let guard = acquire(&locks, &lasting("a", ttl)).await;
    fail_over();
    let next = acquire(&other, &long("a")).await;
    assert_replaced(guard, next).await;
}

#[tokio::test]
async fn a_fail_over_that_loses_the_lock_is_noticed_and_the_token_grows() {
    let servers = RedisSentinels::start();
    let config = of_sentinels(&servers);
    // The replica knows of an earlier lock, and of nothing later.
    let locks = open(config.clone()).await;
    pass(&locks, "a").await;
    servers.wait_for_replica();
    cut_off(&servers.servers()[0], &servers.servers()[1]);
    // The client sees the change, long before its next renewal is due.
    assert_lost(config, TTL * 30, || {
        servers.servers()[0].kill();
        servers.servers()[1].resume();
    })
    .await;
}

/// A name that leads to one server at a time: each new connection goes to the one in `target`.
async fn name_of(target: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let port = target.load(Ordering::SeqCst);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    port
}

/// A master, its replica, and a name that leads to the master: the port of the name, and what it leads to.
async fn named_master() -> (RedisServer, RedisServer, u16, Arc<AtomicU16>) {
    let options = RedisOptions::new().with_config("repl-diskless-sync-delay", "0");
    let start = || RedisServer::start(options.clone());
    let (old, new) = (start(), start());
    follow(&new, &old);
    until("it follows", || info(&new, "master_link_status") == "up").await;
    let target = Arc::new(AtomicU16::new(old.port()));
    let name = name_of(Arc::clone(&target)).await;
    (old, new, name, target)
}

#[tokio::test]
async fn a_demoted_server_is_left_for_the_one_that_has_its_name_now() {
    let (old, new, name, target) = named_master().await;
    let [locks, watcher] = [(); 2].map(|()| open(RedisConfig::new("127.0.0.1", name)));
    let (locks, watcher) = (locks.await, watcher.await);
    let ttl = TTL * 2;
    let guard = acquire(&locks, &lasting("a", ttl)).await;
    until("it is replicated", || look(&new, "a").holders == 1).await;
    new.command(&["REPLICAOF", "NO", "ONE"]);
    // Of nobody, so that its data is old.
    old.command(&["REPLICAOF", "127.0.0.1", "1"]);
    target.store(new.port(), Ordering::SeqCst);
    // It writes nothing, and leaves the server all the same.
    let found = async || admin(&*watcher).list("").await;
    lock_testkit::locks::until("a list leaves the server", async || found().await.is_ok()).await;
    stays_held(&guard, ttl * 2).await;
    let other = take(&locks, "b").await;
    assert_eq!(look(&new, "b").holders, 1);
    assert_eq!(found().await.expect("the master answers").len(), 2);
    release(other).await;
    release(guard).await;
    assert_eq!(look(&new, "a").holders, 0);
}

/// It came back without its data, before its name led to another server.
#[tokio::test]
async fn a_replica_that_does_not_know_a_lease_does_not_end_it() {
    let (old, new, name, target) = named_master().await;
    let locks = open(RedisConfig::new("127.0.0.1", name)).await;
    let guard = acquire(&locks, &long("a")).await;
    until("it is replicated", || look(&new, "a").holders == 1).await;
    new.command(&["REPLICAOF", "NO", "ONE"]);
    old.command(&["FLUSHALL"]);
    old.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = guard.renew().await.expect_err("it is a replica");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(guard.is_held(), "lost as {:?}", guard.lost().reason());
    target.store(new.port(), Ordering::SeqCst);
    let renewed = async || guard.renew().await.is_ok();
    lock_testkit::locks::until("its name leads to the master", renewed).await;
    release(guard).await;
    assert_eq!(look(&new, "a").holders, 0);
}

/// So many requests of waiters.
fn requests(count: usize) -> impl Iterator<Item = AcquireRequest> {
    let one = within(request("a").with_ttl(TTL * 3), TIMEOUT * 2);
    std::iter::repeat_n(one, count)
}

async fn served(tasks: JoinSet<()>, recorder: &Recorder) {
    tasks.join_all().await;
    let checker = Checker::new().with_max_idle(TIMEOUT);
    checker.check(&recorder.events()).assert_clean();
}

async fn queued(server: &RedisServer, count: usize) {
    until("they wait", || look(server, "a").waiters == count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fail_over_keeps_what_is_replicated_and_serves_waiters() {
    let servers = RedisSentinels::start();
    let config = of_sentinels(&servers);
    let clients = [open(config.clone()).await, open(config).await];
    let recorder = Recorder::new();
    let held = noted(&recorder, &clients[0], &long("a")).await;
    let tasks = noted_waiters(&clients, &recorder, requests(10));
    queued(&servers.servers()[0], 10).await;
    servers.wait_for_replica();
    servers.servers()[0].kill();
    let attempt = attempt("a");
    let began = Instant::now();
    loop {
        let error = clients[1].acquire(&attempt).await.expect_err("two holders");
        match error.kind() {
            ErrorKind::Contended => break,
            kind => assert_eq!(kind, ErrorKind::Unavailable, "{error}"),
        }
        assert!(began.elapsed() < TIMEOUT, "no failover");
        tokio::time::sleep(ms(50)).await;
    }
    // Its client may hear of the new master a moment later.
    renewed(&held).await;
    held.look();
    held.release().await.expect("it is released");
    served(tasks, &recorder).await;
    // A Sentinel may still name the former master.
    let master = &servers.servers()[1];
    until("nothing is left", || {
        look(master, "a") == lock_testkit::harness::Look::default()
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_too_few_replicas_know_is_not_granted_and_not_left() {
    let servers = RedisSentinels::start();
    let config = of_sentinels(&servers);
    let careful = config
        .clone()
        .with_replica_acks(1, ms(200))
        .expect("it is in range");
    let (locks, other) = (open(careful).await, open(config).await);
    let (once, patient) = (attempt("a"), within(request("a"), TIMEOUT));
    release(acquire(&locks, &patient).await).await;
    servers.wait_for_replica();
    servers.servers()[1].stop();
    let _error = assert_error(&locks, &once, ErrorKind::Unavailable).await;
    assert!(locks.shutdown(SOON).await, "the lock is not released");
    release(acquire(&other, &once).await).await;
    servers.servers()[1].resume();
    release(acquire(&locks, &patient).await).await;
}

#[tokio::test]
async fn what_too_few_replicas_know_is_neither_adopted_nor_recorded() {
    let (servers, locks) = with_acks().await;
    let guard = acquire(&locks, &long("a").with_renewal(Renewal::Manual)).await;
    let (id, new) = (guard.lease_id().expect("a lease"), any_id());
    let token = guard.fencing_token().expect("it has a token");
    let (key, record) = (guard.key().clone(), Record::new(token, "done"));
    guard.abandon();
    let other = acquire(&locks, &long("b").with_renewal(Renewal::Manual)).await;
    let mut writer = acquire(&locks, &long("c").with_renewal(Renewal::Manual)).await;
    let admin = locks.admin().expect("it has an administration");
    let adopt = || admin.adopt_lease(&key, id, new, TTL * 30);
    let write = || admin.write_record(&key, &record, TIMEOUT);
    let break_other = || admin.break_lock(other.key(), "test");
    servers.servers()[1].stop();
    let answers = [
        adopt().await.map(drop),
        write().await.map(drop),
        break_other().await.map(drop),
        // Free at the master by now.
        break_other().await.map(drop),
        writer.downgrade().await,
    ];
    for error in answers.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_outcome_unknown(), "{error}");
    }
    servers.servers()[1].resume();
    servers.wait_for_replica();
    assert!(adopt().await.expect("a replica has it") > Some(token));
    assert!(write().await.expect("a replica has it"));
    let broken = break_other().await.expect("the master is confirmed");
    assert_eq!(broken, None, "it was broken");
    writer.downgrade().await.expect("a replica has it");
    let replica = &servers.servers()[1];
    let holder = replica.command(&["GET", "a"]).text().unwrap_or_default();
    assert!(holder.starts_with(&new.to_hex()), "{holder}");
}

/// An earlier call without a reply may have broken the lock: replicas acknowledge that by a write of this one.
#[tokio::test]
async fn a_break_of_a_free_lock_writes_for_its_replicas_and_leaves_nothing() {
    let server = RedisServer::start(RedisOptions::new());
    let careful = of(&server).with_replica_acks(1, ms(20));
    let locks = open(careful.expect("it is in range")).await;
    let before = count(&server, "rdb_changes_since_last_save");
    let broken = admin(&*locks).break_lock(&key("a"), "test").await;
    let error = broken.expect_err("no replica has it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    let after = count(&server, "rdb_changes_since_last_save");
    assert!(after > before, "nothing was written");
    assert_eq!(server.command(&["DBSIZE"]).integer(), Some(0));
}

#[tokio::test]
async fn a_take_over_that_loses_the_lock_is_noticed_and_the_token_grows() {
    let cluster = RedisCluster::start(3, 3);
    let slot = cluster.slot_of("a");
    let master = cluster.owner_of(slot);
    let replica = master + 3;
    let locks = open(of_cluster(&cluster)).await;
    pass(&locks, "a").await;
    tokio::time::sleep(ms(300)).await;
    cut_off(&cluster[master], &cluster[replica]);
    // By its next renewal.
    assert_lost(of_cluster(&cluster), TTL * 9, || {
        cluster[master].kill();
        cluster[replica].resume();
        cluster.take_over(replica);
    })
    .await;
}

/// The renewals give up before their requests fail, and there is no subscription that would read the map.
#[tokio::test]
async fn renewals_follow_a_lock_from_a_master_that_is_silent() {
    let cluster = RedisCluster::start(3, 3);
    let master = cluster.owner_of(cluster.slot_of("a"));
    let replica = master + 3;
    let locks = open(of_cluster(&cluster).without_push()).await;
    let ttl = TTL * 10;
    let guard = acquire(&locks, &lasting("a", ttl)).await;
    let known = || cluster[replica].command(&["DBSIZE"]).integer();
    // The lock and its counter.
    until("it is replicated", || known() == Some(2)).await;
    let stopped = Instant::now();
    cluster[master].stop();
    cluster.take_over(replica);
    // Until after the end of a lease that was not renewed.
    stays_held(&guard, ttl.saturating_sub(stopped.elapsed()) + TTL).await;
    release(guard).await;
    assert_eq!(look(&cluster[replica], "a").holders, 0);
}

/// How long an acknowledgement of a far replica takes.
const FAR: Duration = Duration::from_millis(240);

/// A master and its far replica, with the way between them, and a client that waits for the replica.
async fn with_far_replica() -> ([RedisServer; 2], Proxy, Arc<Redis>) {
    let options = RedisOptions::new().with_config("repl-diskless-sync-delay", "0");
    let [master, replica] = [(); 2].map(|()| RedisServer::start(options.clone()));
    let far = Proxy::of_bytes(master.port());
    far.set_latency(Direction::Both, FAR / 2);
    replica.command(&["REPLICAOF", "127.0.0.1", &far.port().to_string()]);
    until("it follows", || {
        info(&replica, "master_link_status") == "up"
    })
    .await;
    let careful = of(&master).with_replica_acks(1, TTL);
    let locks = open(careful.expect("it is in range")).await;
    ([master, replica], far, locks)
}

/// `WAIT` blocks its connection: the last of them would wait for the acks of all before it.
#[tokio::test]
async fn grants_of_other_keys_wait_for_a_replica_at_the_same_time() {
    let (_servers, _far, locks) = with_far_replica().await;
    // The first round connects, and a busy machine may need another one.
    for round in 0.. {
        let began = Instant::now();
        let waiters = (0..6).map(|n| waiting(&locks, long(&format!("{round}/{n}"))));
        let waiters: Vec<_> = waiters.collect();
        for waiter in waiters {
            release(granted(waiter).await).await;
        }
        if began.elapsed() < FAR * 4 {
            return;
        }
        assert!(round < 10, "they take {:?}", began.elapsed());
    }
}

/// Grants share a connection if the server accepts no more.
#[tokio::test]
async fn a_server_without_room_grants_what_waits_for_a_replica_one_after_the_other() {
    let ([master, _replica], _far, locks) = with_far_replica().await;
    release(acquire(&locks, &attempt("a")).await).await;
    let clients = master.command(&["CLIENT", "LIST"]).text().expect("a list");
    // No connection is left: the one of this command does not count.
    let room = clients.lines().count() - 1;
    master.command(&["CONFIG", "SET", "maxclients", &room.to_string()]);
    let [a, b] = ["a", "b"].map(attempt);
    let began = Instant::now();
    let (one, other) = tokio::join!(acquire(&locks, &a), acquire(&locks, &b));
    assert!(
        began.elapsed() > FAR * 3 / 2,
        "there was room for another one"
    );
    release(one).await;
    release(other).await;
}

/// The replica would delay the answer that the lock is held, which it need not know.
#[tokio::test]
async fn an_attempt_for_a_lock_that_was_held_a_moment_ago_waits_for_no_replica() {
    let ([master, replica], _far, locks) = with_far_replica().await;
    let guard = take_long(&*open(of(&master)).await, "a").await;
    let once = attempt("a");
    let _error = assert_error(&locks, &once, ErrorKind::Contended).await;
    replica.stop();
    master.command(&["CONFIG", "RESETSTAT"]);
    for mode in [Mode::Exclusive, Mode::Shared] {
        let once = once.clone().with_mode(mode);
        let _error = assert_error(&locks, &once, ErrorKind::Contended).await;
    }
    assert!(!commands(&master).contains_key("wait"));
    release(guard).await;
}

/// `WAIT` blocks its connection: renewals behind the grants of many waiters would be late, although the replica
/// acknowledges each of them in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_that_wait_for_a_replica_delay_no_renewal() {
    let (_servers, _far, locks) = with_far_replica().await;
    let guard = acquire(&locks, &lasting("a", TTL * 5)).await;
    let mut tasks = JoinSet::new();
    for n in 0..48 {
        let (locks, next) = (Arc::clone(&locks), long(&format!("b{}", n / 2)));
        tasks.spawn(async move {
            loop {
                if let Ok(guard) = locks.acquire(&next).await {
                    drop(guard.release().await);
                }
            }
        });
    }
    stays_held(&guard, TTL * 12).await;
    tasks.abort_all();
    release(guard).await;
}

/// A cluster with two clients, and the slot of the lock with its node and another one.
async fn to_be_moved() -> (RedisCluster, [Arc<Redis>; 2], u16, [usize; 2]) {
    let cluster = RedisCluster::start(3, 0);
    let config = of_cluster(&cluster);
    let clients = [open(config.clone()).await, open(config).await];
    let slot = cluster.slot_of("a");
    let from = cluster.owner_of(slot);
    (cluster, clients, slot, [from, (from + 1) % 3])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_takes_its_lock_and_its_queue_along() {
    let (cluster, clients, slot, [from, to]) = to_be_moved().await;
    let recorder = Recorder::new();
    let held = noted(&recorder, &clients[0], &long("a")).await;
    let tasks = noted_waiters(&clients, &recorder, requests(10));
    queued(&cluster[from], 10).await;
    cluster.move_slot(slot, to);
    queued(&cluster[to], 10).await;
    held.renew().await.expect("the lock has moved");
    held.release().await.expect("it is released");
    served(tasks, &recorder).await;
    for node in [from, to] {
        let left = || cluster[node].command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]);
        // The counter stays.
        let count = i64::from(node == to);
        until("nothing is left", || left().integer() == Some(count)).await;
    }
}

#[tokio::test]
async fn a_slot_between_two_nodes_grants_nothing_twice() {
    let (cluster, [locks, other], slot, [from, to]) = to_be_moved().await;
    let guard = acquire(&locks, &long("a")).await;
    let counter = cluster[from].command(&["KEYS", "*:tokens"]).items()[0].text();
    let counter = counter.expect("a counter");
    cluster.begin_move(slot, to);
    let once = attempt("a");
    // Before and between the moves of its keys, in both orders.
    for moved in ["", "a", &counter] {
        if !moved.is_empty() {
            cluster.move_key(moved, from, to);
        }
        let error = other.acquire(&once).await.expect_err("two holders");
        let kinds = [ErrorKind::Contended, ErrorKind::Unavailable];
        assert!(kinds.contains(&error.kind()), "{moved}: {error}");
        guard.renew().await.expect("one key is on one node");
    }
    cluster.end_move(slot, to);
    guard.renew().await.expect("the lock has moved");
    let _error = assert_error(&other, &once, ErrorKind::Contended).await;
    let token = guard.fencing_token();
    release(guard).await;
    let next = acquire(&other, &long("a")).await;
    assert!(next.fencing_token() > token);
    next.release().await.expect("it is released");
    assert_eq!(look(&cluster[to], key("a").as_str()).holders, 0);
}

/// The script deletes the lock, and may not use that key again: a missing key of a moving slot belongs to the other
/// node.
#[tokio::test]
async fn a_release_that_ends_halfway_while_its_slot_moves_is_unavailable() {
    let (cluster, [locks, other], slot, [from, to]) = to_be_moved().await;
    let reader = acquire(&locks, &long("a").with_mode(Mode::Shared)).await;
    let writer = waiting(&other, long("a"));
    until("it waits", || look(&cluster[from], "a").waiters == 1).await;
    cluster.begin_move(slot, to);
    let error = reader.release().await.expect_err("its slot moves");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_outcome_unknown(), "{error:?}");
    for node in [from, to] {
        let stays = ["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"];
        assert!(!cluster[node].command(&stays).is_error());
    }
    release(granted(writer).await).await;
}

/// The script deletes the lock before it creates it as a shared one.
#[tokio::test]
async fn a_downgrade_while_its_slot_moves_keeps_the_lock() {
    let (cluster, [locks, other], slot, [from, to]) = to_be_moved().await;
    let mut guard = acquire(&locks, &long("a")).await;
    let reader = waiting(&other, long("a").with_mode(Mode::Shared));
    let number = slot.to_string();
    let stored = || cluster[from].command(&["CLUSTER", "COUNTKEYSINSLOT", &number]);
    // The lock, its counter, its queue, and the first heartbeat of the reader.
    until("the reader waits", || stored().integer() == Some(4)).await;
    cluster.begin_move(slot, to);
    let error = guard.downgrade().await.expect_err("its slot moves");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    guard.renew().await.expect("it is held");
    cluster.end_move(slot, to);
    guard.downgrade().await.expect("its slot has moved");
    release(granted(reader).await).await;
    release(guard).await;
}

/// At the end of a move, the source learns of it first.
#[tokio::test]
async fn a_slot_whose_nodes_refer_to_each_other_is_waited_for() {
    let (cluster, [locks, other], slot, [from, to]) = to_be_moved().await;
    let guard = acquire(&locks, &long("a")).await;
    let token = guard.fencing_token();
    cluster.begin_move(slot, to);
    let number = slot.to_string();
    let keys = cluster[from].command(&["CLUSTER", "GETKEYSINSLOT", &number, "100"]);
    for key in keys.items() {
        cluster.move_key(key.text().expect("a key"), from, to);
    }
    let target = cluster[to].command(&["CLUSTER", "MYID"]).text();
    let target = target.expect("an id");
    let told = cluster[from].command(&["CLUSTER", "SETSLOT", &number, "NODE", &target]);
    assert!(!told.is_error(), "{told:?}");

    let error = assert_error(&other, &attempt("a"), ErrorKind::Unavailable).await;
    assert!(!error.is_outcome_unknown(), "{error:?}");
    cluster[to].command(&["CONFIG", "RESETSTAT"]);
    let next = waiting(&other, long("a"));
    drop(guard);
    let referred = || {
        let count = info(&cluster[to], "errorstat_MOVED");
        let count = count.strip_prefix("count=").map(str::parse::<u32>);
        count.is_some_and(|count| count.expect("a number") >= 50)
    };
    until("both are referred back several times", referred).await;
    cluster.end_move(slot, to);
    // Long before its lease ends.
    let next = granted(next).await;
    assert!(next.fencing_token() > token, "{next:?}");
    release(next).await;
}

/// A request that waits for replicas blocks the requests behind it on its connection, renewals among
/// them: replicas confirm the grant of a waiter, and no heartbeat.
#[tokio::test]
async fn waiters_wait_for_no_replica() {
    let servers = RedisSentinels::start();
    servers.wait_for_replica();
    let config = of_sentinels(&servers).with_replica_acks(1, SOON);
    let config = config.expect("it can wait");
    let (locks, other) = (open(config.clone()).await, open(config).await);
    let guard = acquire(&other, &long("a")).await;
    let master = &servers.servers()[0];
    let mut waiters = vec![waiting(&locks, lasting("a", 2 * TTL))];
    until("one waits", || look(master, "a").waiters == 1).await;
    // From here on the client knows that the lock is held, and does not try to take it as a free one.
    master.command(&["CONFIG", "RESETSTAT"]);
    let shared = long("a").with_mode(Mode::Shared);
    waiters.extend((0..20).map(|_| waiting(&locks, shared.clone())));
    until("they wait", || look(master, "a").waiters == 21).await;
    let has_waited = || commands(master).contains_key("wait");
    // Several heartbeats of the first one.
    tokio::time::sleep(ms(1_000)).await;
    assert!(!has_waited(), "before anything was granted");
    release(guard).await;
    for waiter in waiters {
        let next = granted(waiter).await;
        let holders = inspect(&other, "a").await.holders;
        let mut tokens = holders.iter().map(|holder| holder.token);
        let token = next.fencing_token();
        assert!(tokens.any(|shown| shown == token), "{token:?}: {holders:?}");
        release(next).await;
    }
    assert!(has_waited(), "no replica was asked");
}
