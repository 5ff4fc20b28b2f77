use std::pin::pin;
use std::time::Duration;

use lock_testkit::polled_once;
use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock_core::engine::LeaseId;
use polylock_core::{ErrorKind, LeaseState, LockKey, RenewalRequest};
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::server::Server;

fn server() -> RedisServer {
    RedisServer::start(RedisOptions::new())
}

#[tokio::test]
async fn a_socket_file_serves_as_well() {
    let server = server();
    let (topology, _) = open(&RedisConfig::unix(server.socket())).await;
    assert_eq!(count(&*topology, "a").await.unwrap(), 1);
}

#[tokio::test]
async fn messages_are_heard_before_and_after_a_restart() {
    let server = server();
    let (topology, told) = open(&config(&server)).await;
    let channel = topology.channel().await.unwrap().expect("RESP3 pushes");
    assert_eq!(topology.channel().await.unwrap().as_ref(), Some(&channel));
    server.command(&["PUBLISH", &channel, "one"]);
    until("a message", || told.has(b"one")).await;

    server.restart();
    until("deafness", || told.deaf.load(Ordering::SeqCst) == 1).await;
    // Any call brings the subscription back, before its own request leaves.
    count(&*topology, "a").await.unwrap();
    assert_eq!(
        server.command(&["PUBLISH", &channel, "two"]).integer(),
        Some(1)
    );
    until("a message", || told.has(b"two")).await;
    assert_eq!(told.deaf.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_connection_that_ended_unnoticed_costs_no_call() {
    let server = server();
    let (topology, _) = open(&config(&server)).await;
    count(&*topology, "a").await.unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "NORMAL"]);
    sleep(Duration::from_millis(20)).await;
    assert_eq!(count(&*topology, "a").await.unwrap(), 2);
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_in_time_and_found_again() {
    let server = server();
    let short = Duration::from_millis(300);
    let hasty = config(&server).with_timeout(short);
    let (topology, told) = open(&hasty.expect("it is in range")).await;
    topology.channel().await.unwrap().unwrap();
    count(&*topology, "a").await.unwrap();
    server.stop();
    for sent in [true, false, false] {
        let begun = Instant::now();
        let failure = count(&*topology, "a").await.unwrap_err();
        assert!(begun.elapsed() < short * 4, "{failure:?}");
        assert_eq!(failure.outcome_unknown, sent, "{failure:?}");
        let error = Error::from(failure);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert_eq!(told.deaf.load(Ordering::SeqCst), 1);
    server.resume();
    let n = timeout(Duration::from_secs(2), async {
        loop {
            if let Ok(n) = count(&*topology, "a").await {
                return n;
            }
        }
    });
    // The first of the calls that timed out was done all the same.
    assert_eq!(n.await.unwrap(), 3);
}

#[tokio::test]
async fn a_connection_that_ends_while_it_subscribes_is_a_gap() {
    let server = server();
    let short = Duration::from_millis(300);
    let hasty = config(&server).with_timeout(short);
    let (topology, told) = open(&hasty.expect("it is in range")).await;
    server.stop();
    topology.channel().await.expect_err("the server hangs");
    assert_eq!(told.gaps.load(Ordering::SeqCst), 1);
    assert_eq!(told.deaf.load(Ordering::SeqCst), 0, "nobody relied on it");
    server.resume();
}

#[tokio::test]
async fn callers_share_an_attempt_to_connect() {
    let server = server();
    let (topology, _) = open(&config(&server)).await;
    server.restart();
    sleep(Duration::from_millis(20)).await;
    let calls = (0..200).map(|_| {
        let topology = Arc::clone(&topology);
        tokio::spawn(async move { count(&*topology, "a").await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    let stats = server.command(&["INFO", "stats"]).text().unwrap();
    // One of ours; the others are those of the test.
    let made = stats
        .lines()
        .find_map(|line| line.strip_prefix("total_connections_received:"));
    assert!(made.unwrap().parse::<u32>().unwrap() < 10, "{stats}");
}

#[tokio::test]
async fn a_dropped_call_leaves_the_connection_usable() {
    let server = server();
    let (topology, _) = open(&config(&server)).await;
    count(&*topology, "a").await.unwrap();
    let id = server.command(&["CLIENT", "LIST", "TYPE", "NORMAL"]).text();
    for turns in 0..6 {
        let mut call = Box::pin(count(&*topology, "b"));
        for _ in 0..turns {
            if polled_once(call.as_mut()).await.is_ready() {
                break;
            }
            yield_now().await;
        }
        drop(call);
        count(&*topology, "a").await.unwrap();
    }
    assert_eq!(count(&*topology, "a").await.unwrap(), 8);
    let again = server.command(&["CLIENT", "LIST", "TYPE", "NORMAL"]).text();
    let ids = |list: Option<String>| -> Vec<String> {
        let list = list.unwrap();
        let ours = list.lines().filter(|line| line.contains("resp=3"));
        ours.filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect()
    };
    assert_eq!(ids(id), ids(again));
}

#[test]
fn a_runtime_has_its_connection_and_takes_it_along() {
    let server = server();
    let first = Builder::new_current_thread().enable_all().build().unwrap();
    let (topology, _) = first.block_on(open(&config(&server)));
    let ours = || {
        let list = server.command(&["CLIENT", "LIST"]).text().unwrap();
        list.lines()
            .filter(|line| line.contains("cmd=evalsha") || line.contains("cmd=eval "))
            .count()
    };
    first.block_on(count(&*topology, "a")).unwrap();
    assert_eq!(ours(), 1);
    for n in 2..5 {
        let other = Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(other.block_on(count(&*topology, "a")).unwrap(), n);
        assert_eq!(ours(), 2);
        drop(other);
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while ours() > 1 {
            assert!(std::time::Instant::now() < deadline);
        }
    }
    drop(first);
    let last = Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(last.block_on(count(&*topology, "a")).unwrap(), 5);
}

#[test]
fn a_call_may_move_to_another_runtime() {
    let server = server();
    let first = Builder::new_current_thread().enable_all().build().unwrap();
    let second = Builder::new_current_thread().enable_all().build().unwrap();
    let (topology, _) = first.block_on(open(&config(&server)));
    first.block_on(count(&*topology, "a")).unwrap();
    let mut call = Box::pin(count(&*topology, "a"));
    assert!(first.block_on(polled_once(call.as_mut())).is_pending());
    drop(first);
    let failure = second.block_on(call).unwrap_err();
    assert_eq!(Error::from(failure).kind(), ErrorKind::Unavailable);
    second.block_on(count(&*topology, "a")).unwrap();
}

#[tokio::test]
async fn replicas_are_waited_for_without_holding_up_others() {
    let master = server();
    let replica = server();
    let (topology, _) = open(&config(&master)).await;
    let call = Call::script(&COUNT, &[b"x"], &[]);
    let within = Duration::from_millis(1500);
    let wait = Some((1, within));
    let done = topology.call(Call { wait, ..call }).await.unwrap();
    assert_eq!((done.value, done.acked), (redis::Value::Int(1), 0));
    let (waiting, other) = tokio::join!(topology.call(Call { wait, ..call }), async {
        let begun = Instant::now();
        count(&*topology, "a").await.unwrap();
        begun.elapsed()
    });
    assert_eq!(waiting.unwrap().acked, 0);
    assert!(
        other < within,
        "takes {other:?}, and not less than {within:?}"
    );

    let port = master.port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", port.as_str()]);
    // The first copy takes its time.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !matches!(topology.call(Call { wait, ..call }).await, Ok(done) if done.acked == 1) {
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test]
async fn keys_are_listed() {
    let server = server();
    let (topology, _) = open(&config(&server)).await;
    for n in 0..2500 {
        server.command(&["SET", &format!("lock:{n}"), "x"]);
    }
    server.command(&["SET", "other", "x"]);
    assert_eq!(
        topology
            .scan(b"lock:*", Duration::ZERO)
            .await
            .unwrap()
            .len(),
        2500
    );
    assert_eq!(topology.masters().await.unwrap().len(), 1);
}

/// It was the process that stalled, and not the server.
#[tokio::test]
async fn the_reply_to_a_renewal_that_waits_in_the_socket_is_not_late() {
    const ID: &str = "000102030405060708090a0b0c0d0e0f";
    let redis = server();
    let config = config(&redis);
    let (topology, _) = open(&config).await;
    let server = Server::new(topology, &config);
    redis.command(&["SET", "k", &format!("{ID}|label"), "PX", "900000"]);
    let (key, id) = (LockKey::new("k").unwrap(), LeaseId::from_hex(ID).unwrap());
    let due = [RenewalRequest::new(key, id, Duration::from_secs(1))];
    let renew = || server.renew(&due, &|_, _| (), &|_| None);
    let is_held = |states: &[_]| matches!(states, [Ok(LeaseState::Held)]);
    // The server knows the script after that.
    lock_testkit::locks::until("a renewal", async || is_held(&renew().await)).await;

    let executed = || {
        let stats = redis.command(&["INFO", "commandstats"]).text().unwrap();
        let of_scripts = stats.lines().find(|line| line.contains("evalsha"));
        of_scripts.map(str::to_owned)
    };
    let before = executed();
    redis.stop();
    let mut renewal = pin!(renew());
    let sent = async {
        for _ in 0..20 {
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        states = &mut renewal => panic!("a reply without the server: {states:?}"),
        () = sent => {}
    }
    redis.resume();
    let mut waited = 0;
    while executed() == before {
        waited += 1;
        assert!(waited < 1_000, "the request is not executed: {before:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(due[0].timeout * 2);
    let states = renewal.await;
    assert!(is_held(&states), "{states:?}");
}
