//! Redis: one server, a replica, a node of a cluster.

use lock_testkit::servers::{
    ClientCertificate, Fsync, RedisCluster, RedisOptions, RedisServer, ServerCertificate, TlsFiles,
};

use super::support::{examine, examine_ahead, examine_with, expect};
use crate::fixture::until;

fn durable() -> RedisOptions {
    RedisOptions::new().with_aof(Fsync::EverySecond)
}

#[test]
fn a_server_with_a_log_gets_a_clean_bill_and_nothing_stays_in_it() {
    let server = RedisServer::start(durable().with_memory(100 << 20, "noeviction"));
    let bill = examine(&server.url());
    bill.assert_clean();
    bill.assert_status("token-order", "ok");
    bill.assert_status("expiry", "ok");
    let keys = server.command(&["KEYS", "*polylock-doctor*"]);
    let held = server.command(&["EXISTS", "lock:polylock-doctor"]);
    assert_eq!(
        held.integer(),
        Some(0),
        "the lock of the doctor stays: {keys:?}"
    );
}

#[test]
fn what_a_server_is_set_up_to_forget_is_found() {
    let evicting = RedisServer::start(durable().with_memory(100 << 20, "allkeys-lru"));
    let forgetful = RedisServer::start(RedisOptions::new());
    let slow = RedisServer::start(
        RedisOptions::new()
            .with_config("appendonly", "yes")
            .with_config("appendfsync", "no"),
    );
    expect(&[
        ("eviction", evicting.url(), &[("eviction", "warning")]),
        (
            "persistence",
            forgetful.url(),
            &[("persistence", "warning")],
        ),
        ("flush", slow.url(), &[("flush", "warning")]),
    ]);
    let accepted = examine_with(&["--accept", "persistence", &forgetful.url()], |_| {});
    assert_eq!(accepted.ended.code, 0, "{accepted}");
    assert_eq!(
        accepted.check("persistence")["accepted"],
        true,
        "{accepted}"
    );
}

#[test]
fn a_replica_and_its_master_are_found() {
    let master = RedisServer::start(durable());
    let port = master.port().to_string();
    let replica =
        RedisServer::start(durable().with_config("replicaof", &format!("127.0.0.1 {port}")));
    until("the replica has connected", || {
        let info = master.command(&["INFO", "replication"]).text();
        let info = info.unwrap_or_default();
        info.contains("connected_slaves:1") && info.contains("state=online")
    });
    expect(&[
        ("replica", replica.url(), &[("replica", "error")]),
        ("master", master.url(), &[("replication", "warning")]),
        (
            "acks that writes do not need",
            format!("{}?min-replica-acks=1", master.url()),
            &[("replication", "warning")],
        ),
    ]);
    let set = master.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(set.text().as_deref(), Some("OK"));
    expect(&[("acks", format!("{}?min-replica-acks=1", master.url()), &[])]);
}

#[test]
fn who_is_not_let_in_is_told_why() {
    let server = RedisServer::start(durable().with_password("secret"));
    let at = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port());
    expect(&[
        ("the right password", at(":secret@"), &[]),
        ("a wrong password", at(":s3ntinel@"), &[("login", "error")]),
        ("no password", at(""), &[("login", "error")]),
    ]);
}

#[test]
fn rights_that_are_missing_are_found() {
    let server = RedisServer::start(
        durable()
            .with_user(
                "nothing",
                "on >pw ~* &* -@all +hello +client +info +config|get +time",
            )
            .with_user("elsewhere", "on >pw ~other:* &* +@all"),
    );
    let at = |user: &str| format!("redis://{user}:pw@127.0.0.1:{}", server.port());
    expect(&[
        (
            "no scripts",
            at("nothing"),
            &[("push", "warning"), ("rights", "error")],
        ),
        ("other keys", at("elsewhere"), &[("rights", "error")]),
    ]);
}

#[test]
fn tls_that_is_not_agreed_on_is_found() {
    let files = TlsFiles::new(ServerCertificate::Valid);
    let server = RedisServer::start(durable().with_tls(&files, ClientCertificate::Ignored));
    let elsewhere = TlsFiles::new(ServerCertificate::WrongHost);
    let other = RedisServer::start(durable().with_tls(&elsewhere, ClientCertificate::Ignored));
    let plain = RedisServer::start(durable());
    let ca = |files: &TlsFiles| format!("tls-ca-file={}", files.ca().display());
    let unknown = files.unknown_ca();
    expect(&[
        ("trusted", format!("{}?{}", server.url(), ca(&files)), &[]),
        (
            "untrusted",
            format!("{}?tls-ca-file={}", server.url(), unknown.display()),
            &[("tls", "error")],
        ),
        (
            "another host",
            format!("{}?{}", other.url(), ca(&elsewhere)),
            &[("tls", "error")],
        ),
        (
            "no TLS on this side",
            format!("redis://127.0.0.1:{}?connect-timeout=1s", server.port()),
            &[("tls", "error")],
        ),
        (
            "no TLS on that side",
            format!("rediss://127.0.0.1:{}?connect-timeout=1s", plain.port()),
            &[("tls", "error")],
        ),
    ]);
}

#[test]
fn a_node_of_a_cluster_is_found() {
    let cluster = RedisCluster::start(3, 0);
    let node = format!("redis://127.0.0.1:{}", cluster.ports()[0]);
    let bill = examine(&node);
    assert!(bill.faults().contains(&("cluster", "error")), "{bill}");
    // The testkit has it forget.
    expect(&[("cluster", cluster.url(), &[("persistence", "warning")])]);
}

#[test]
fn clocks_that_differ_are_found() {
    let server = RedisServer::start(durable());
    examine_ahead(&server.url()).assert_faults(&[("clock", "warning")]);
}
