//! The fault proxy: a planned fault strikes its request or connection, and no other.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lock_testkit::proxy::{
    Across, Command, Direction, Fate, FaultPlan, Planned, Proxy, PushFate, Then,
};
use lock_testkit::servers::{RedisOptions, RedisServer, Reply, RespClient};
use polylock_core::memory::{Fault, Reachable, Request};

use crate::eventually;

#[test]
fn what_is_not_planned_for_passes() {
    let (_server, proxy) = start();
    let planned = proxy.plan(|command| command.is("NONE"), Fate::LostReply(Then::Cut));
    let sets = proxy.watch(|command| command.is("set"));
    let all = proxy.watch(|_| true);
    let mut client = client(&proxy);
    client.send(&["SET", "key", "value"]).expect("sent");
    client.send(&["GET", "key"]).expect("sent");
    assert_eq!(client.receive().expect("a reply"), simple("OK"));
    assert_eq!(client.receive().expect("a reply"), bulk("value"));
    let map = client.command(&["HELLO", "3"]).expect("a reply");
    assert!(matches!(map, Reply::Map(_)), "{map:?}");
    let long = "x".repeat(1_000_000);
    let echo = client.command(&["ECHO", &long]).expect("a reply");
    assert_eq!(echo, bulk(&long));
    let counts = (planned.struck(), all.count(), proxy.connections());
    assert_eq!(counts, (0, 4, 1));
    assert_eq!(sets.seen()[0].arg(2), "value");
    assert_eq!(sets.count(), 1);
}

#[test]
fn a_lost_request_does_not_arrive_and_a_lost_reply_does_not_either() {
    let (server, proxy) = start();
    let cases = [
        (Fate::LostRequest(Then::Cut), 0),
        (Fate::LostReply(Then::Cut), 1),
        (Fate::LostRequest(Then::CutAfter(DELAY)), 1),
        (Fate::LostReply(Then::CutAfter(DELAY)), 2),
    ];
    for (fate, arrived) in cases {
        let planned = proxy.plan(|command| command.is("INCR"), fate);
        let error = increment(&proxy).expect_err("no reply");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{fate:?}");
        assert_eq!(planned.struck(), 1);
        assert_eq!(count(&server), arrived, "{fate:?}");
    }
    assert_eq!(increment(&proxy).expect("a reply"), Reply::Integer(3));
}

#[test]
fn silence_is_for_the_whole_connection_and_for_no_other() {
    let (server, proxy) = start();
    proxy.plan(|command| command.is("INCR"), Fate::LostReply(Then::Silent));
    let mut silent = RespClient::connect(proxy.port(), DELAY).expect("connected");
    for command in [&["INCR", "n"][..], &["PING"]] {
        let error = silent.command(command).expect_err("no reply");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
    assert_eq!(increment(&proxy).expect("a reply"), Reply::Integer(2));
    assert_eq!(count(&server), 2);
}

#[test]
fn a_late_reply_delays_those_behind_it() {
    let (server, proxy) = start();
    proxy.plan(|command| command.has("late"), Fate::LateReply(LATE));
    let mut client = client(&proxy);
    let began = Instant::now();
    client.send(&["INCRBY", "n", "1"]).expect("sent");
    client.send(&["ECHO", "late"]).expect("sent");
    client.send(&["INCRBY", "n", "1"]).expect("sent");
    assert_eq!(client.receive().expect("a reply"), Reply::Integer(1));
    assert!(began.elapsed() < LATE, "the reply before waits as well");
    eventually(|| count(&server) == 2);
    assert!(began.elapsed() < LATE, "the requests behind wait as well");
    assert_eq!(client.receive().expect("a reply"), bulk("late"));
    assert!(
        began.elapsed() >= LATE,
        "replied after {:?}",
        began.elapsed()
    );
    assert_eq!(client.receive().expect("a reply"), Reply::Integer(2));
}

#[test]
fn bytes_are_slow_when_asked() {
    let (_server, proxy) = start();
    let mut client = client(&proxy);
    let mut taken = || {
        let began = Instant::now();
        client.command(&["PING"]).expect("a reply");
        began.elapsed()
    };
    proxy.set_latency(Direction::Both, DELAY);
    assert!(taken() >= 2 * DELAY);
    proxy.set_latency(Direction::Both, Duration::ZERO);
    proxy.set_drip(Direction::Replies, 1, DELAY / 5);
    assert!(taken() >= DELAY / 5 * 6);
    proxy.clear();
    // A busy machine may be slow once.
    eventually(|| taken() < DELAY);
}

#[test]
fn push_messages_are_lost_doubled_and_late() {
    for protocol in ["2", "3"] {
        let (server, proxy) = start();
        let mut client = client(&proxy);
        client.command(&["HELLO", protocol]).expect("a reply");
        client.send(&["SUBSCRIBE", "a", "b"]).expect("sent");
        for _ in ["a", "b"] {
            let confirmed = client.receive().expect("a reply");
            assert_eq!(confirmed.items()[0], bulk("subscribe"));
        }
        let has = |text: &'static str| move |items: &[Reply]| items.contains(&bulk(text));
        proxy.plan_push(has("lost"), PushFate::Lost);
        proxy.plan_push(has("doubled"), PushFate::Doubled);
        proxy.plan_push(has("late"), PushFate::Late(DELAY));
        proxy.plan(|command| command.is("PING"), Fate::LateReply(20 * DELAY));
        let began = Instant::now();
        client.send(&["PING"]).expect("sent");
        for text in ["lost", "doubled", "late", "last"] {
            server.command(&["PUBLISH", "a", text]);
        }
        let mut got = Vec::new();
        for _ in 0..4 {
            got.extend(client.receive().expect("a message").items()[2].text());
        }
        assert_eq!(got.join(" "), "doubled doubled late last");
        let waited = began.elapsed();
        assert!(waited >= DELAY, "four messages after {waited:?}");
        // All of them overtook the reply.
        let pong = client.receive().expect("a reply");
        assert!(
            pong == simple("PONG") || pong.items()[0] == bulk("pong"),
            "{pong:?}"
        );
    }
}

/// A subscription that is refused has one error, however many channels it asks for.
#[test]
fn replies_stay_with_their_commands_after_a_refused_subscription() {
    let options = RedisOptions::new().with_user("default", "on nopass ~* &none +@all");
    let server = RedisServer::start(options);
    let proxy = Proxy::start(server.port());
    proxy.plan(|command| command.has("lost"), Fate::LostReply(Then::Cut));
    let mut client = client(&proxy);
    client.command(&["HELLO", "3"]).expect("a reply");
    client.send(&["SUBSCRIBE", "a", "b"]).expect("sent");
    client.send(&["ECHO", "kept"]).expect("sent");
    client.send(&["ECHO", "lost"]).expect("sent");
    assert!(client.receive().expect("a reply").is_error());
    assert_eq!(client.receive().expect("a reply"), bulk("kept"));
    client.receive().expect_err("a reply");
}

#[test]
fn what_is_no_command_passes_as_bytes() {
    let (_server, proxy) = start();
    let all = proxy.watch(|_| true);
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("connected");
    stream.write_all(b"PING\r\n").expect("sent");
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(&reply, b"+PONG\r\n");
    assert_eq!(all.count(), 0);
}

#[tokio::test]
async fn faults_meet_the_requests_of_their_kind() {
    let servers = [start(), start()];
    let (servers, proxies): (Vec<_>, Vec<_>) = servers.into_iter().unzip();
    let classify = |command: &Command| match &*command.arg(0) {
        "INCR" => Some(Request::Acquire),
        "DECR" => Some(Request::Release),
        _ => None,
    };
    let faults = FaultPlan::new(proxies, Across::Any, classify);
    let ask = |at: usize, name: &str| client(&faults.proxies()[at]).command(&[name, "n"]);
    faults.plan(Request::Acquire, Fault::LostReply);
    ask(0, "DECR").expect("another kind");
    ask(1, "INCR").expect_err("a reply");
    ask(0, "INCR").expect("met once");
    faults.plan(Request::Release, Fault::Duplicated);
    assert_eq!(ask(0, "DECR").expect("a reply"), Reply::Integer(-2));
    faults.set_reachable(Reachable::Cut);
    for proxy in faults.proxies() {
        RespClient::connect(proxy.port(), TIMEOUT).expect_err("connected");
    }
    faults.set_reachable(Reachable::Connected);
    assert_eq!((count(&servers[0]), count(&servers[1])), (-2, 1));

    let planned = Planned::each(|command| command.is("INCR"), Fate::LateReply(DELAY));
    faults.proxies()[0].add(&planned);
    ask(0, "INCR").expect("a reply");
    planned.met(TIMEOUT).await;
}

fn start() -> (RedisServer, Proxy) {
    let server = RedisServer::start(RedisOptions::new());
    let proxy = Proxy::start(server.port());
    (server, proxy)
}

fn client(proxy: &Proxy) -> RespClient {
    RespClient::connect(proxy.port(), TIMEOUT).expect("the proxy accepts")
}

fn increment(proxy: &Proxy) -> io::Result<Reply> {
    client(proxy).command(&["INCR", "n"])
}

fn count(server: &RedisServer) -> i64 {
    server.command(&["GET", "n"]).integer().unwrap_or(0)
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn simple(text: &str) -> Reply {
    Reply::Simple(text.to_owned())
}

const DELAY: Duration = Duration::from_millis(60);
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than a busy machine takes for a few commands.
const LATE: Duration = Duration::from_secs(2);
