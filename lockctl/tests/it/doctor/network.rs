//! What is between a client and a server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{Fsync, RedisOptions, RedisServer};

use super::support::{examine, examine_with, expect, text};

#[test]
fn nobody_who_listens_is_told_from_nobody_who_is_there() {
    expect(&[
        (
            "a port nobody has",
            "redis://127.0.0.1:1".to_owned(),
            &[("connect", "error")],
        ),
        (
            "a wrong name",
            "redis://no-such-host.invalid".to_owned(),
            &[("connect", "error")],
        ),
        (
            "no socket",
            "redis+unix:///no/such/socket".to_owned(),
            &[("connect", "error")],
        ),
        (
            "two of them",
            "postgres://u:p@127.0.0.1:1/x".to_owned(),
            &[("connect", "error")],
        ),
        (
            "an ensemble",
            "zk://127.0.0.1:1,127.0.0.1:2/x".to_owned(),
            &[("connect", "error")],
        ),
    ]);
}

#[test]
fn a_server_that_takes_connections_and_says_nothing_is_found() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let bill = examine(&format!("redis://127.0.0.1:{port}?connect-timeout=1s"));
    bill.assert_faults(&[("connect", "error")]);
    let last = bill.checks().last().map(|check| text(check, "summary"));
    let is_told = last.is_some_and(|what| what.contains("did not answer within 1s"));
    assert!(is_told, "the last check has another time: {bill}");
}

#[test]
fn something_else_at_the_port_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            thread::spawn(move || {
                let mut asked = [0; 64];
                if client.read(&mut asked).is_ok_and(|count| count > 0) {
                    client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
                }
            });
        }
    });
    let bill = examine(&format!("redis://127.0.0.1:{port}?connect-timeout=1s"));
    bill.assert_faults(&[("connect", "error")]);
    assert_eq!(bill.ended.code, 1, "{bill}");
}

#[test]
fn a_link_that_is_too_slow_for_the_leases_is_found() {
    let server = RedisServer::start(RedisOptions::new().with_aof(Fsync::EverySecond));
    let proxy = Proxy::start(server.port());
    proxy.set_latency(Direction::Replies, Duration::from_millis(60));
    let url = format!("{}?connect-timeout=10s", proxy.url());
    let bill = examine_with(&["--ttl", "1s", &url], |_| {});
    bill.assert_faults(&[("round-trip", "warning")]);
    let impact = text(bill.check("round-trip"), "impact");
    let is_given = impact.starts_with("a renewal of a lease of 1s is given 200ms");
    assert!(is_given, "another time is given: {bill}");
    let target = &bill.value["targets"][0];
    let cycle = target["round_trip"]["acquire_release"]["p50_ms"].as_f64();
    assert!(
        cycle >= Some(120.0),
        "two replies took {cycle:?} ms: {bill}"
    );
    let least = target["recommended"]["min_ttl_ms"].as_u64();
    assert!(least >= Some(5000), "the least ttl is {least:?} ms: {bill}");
}
