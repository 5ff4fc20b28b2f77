//! What a private Redis server can be asked for, and several of them.

use std::process::Command;

use lock_testkit::servers::{
    ClientCertificate, RedisNodes, RedisOptions, RedisServer, Reply, RespClient, ServerCertificate,
    TlsFiles,
};

#[test]
fn what_is_not_persisted_is_lost_with_the_server() {
    let server = RedisServer::start(RedisOptions::new());
    server.command(&["SET", "key", "value"]);
    server.restart();
    assert_eq!(server.command(&["GET", "key"]), Reply::Nil);
}

#[test]
fn memory_is_bounded_by_a_policy() {
    let server = RedisServer::start(RedisOptions::new().with_memory(100_000_000, "allkeys-lru"));
    let info = server.command(&["INFO", "memory"]).text().expect("text");
    assert!(info.contains("maxmemory:100000000\r\n"), "{info}");
    assert!(info.contains("maxmemory_policy:allkeys-lru\r\n"), "{info}");
}

#[test]
fn users_have_the_rights_that_they_are_given() {
    let options = RedisOptions::new()
        .with_password("secret")
        .with_user("app", "on >pw resetkeys ~lock:* -@all +get +set");
    let server = RedisServer::start(options);
    let patience = std::time::Duration::from_secs(5);
    let mut client = RespClient::connect(server.port(), patience).expect("connected");
    let mut ask = |words: &[&str]| client.command(words).expect("a reply").text();
    assert!(ask(&["GET", "lock:a"]).expect("text").starts_with("NOAUTH"));
    assert!(
        ask(&["AUTH", "wrong"])
            .expect("text")
            .starts_with("WRONGPASS")
    );
    assert_eq!(ask(&["AUTH", "secret"]).as_deref(), Some("OK"));
    assert_eq!(ask(&["AUTH", "app", "pw"]).as_deref(), Some("OK"));
    assert_eq!(ask(&["SET", "lock:a", "1"]).as_deref(), Some("OK"));
    assert!(
        ask(&["SET", "other", "1"])
            .expect("text")
            .starts_with("NOPERM")
    );
    assert!(ask(&["DEL", "lock:a"]).expect("text").starts_with("NOPERM"));
}

#[test]
fn tls_asks_for_the_certificates_that_it_is_told() {
    let files = TlsFiles::new(ServerCertificate::Valid);
    let options = RedisOptions::new().with_tls(&files, ClientCertificate::Required);
    let server = RedisServer::start(options);
    assert!(server.url().starts_with("rediss://"));
    let ca = files.ca().display().to_string();
    let own = [files.client_certificate(), files.client_key()];
    let foreign = [
        files.unknown_client_certificate(),
        files.unknown_client_key(),
    ];
    let pair = |[cert, key]: [std::path::PathBuf; 2]| {
        let (cert, key) = (cert.display().to_string(), key.display().to_string());
        ["--cert".to_owned(), cert, "--key".to_owned(), key]
    };
    assert_eq!(ping(&server, &ca, &pair(own.clone())), "PONG");
    assert_ne!(ping(&server, &ca, &[]), "PONG");
    assert_ne!(ping(&server, &ca, &pair(foreign)), "PONG");
    let unknown = files.unknown_ca().display().to_string();
    assert_ne!(ping(&server, &unknown, &pair(own)), "PONG");
}

#[test]
fn an_expired_certificate_is_refused_by_clients() {
    let files = TlsFiles::new(ServerCertificate::Expired);
    let options = RedisOptions::new().with_tls(&files, ClientCertificate::Optional);
    let server = RedisServer::start(options);
    assert_ne!(
        ping(&server, &files.ca().display().to_string(), &[]),
        "PONG"
    );
    assert_eq!(server.command(&["PING"]), Reply::Simple("PONG".to_owned()));
}

fn ping(server: &RedisServer, ca: &str, more: &[String]) -> String {
    let port = server.port().to_string();
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert", ca])
        .args(more)
        .arg("PING")
        .output()
        .expect("redis-cli is installed");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn the_testkit_gets_in_where_others_need_a_password() {
    let options = RedisOptions::new()
        .with_password("secret")
        .with_user("app", "on >pw ~lock:* +get");
    let server = RedisServer::start(options);
    let users = server.command(&["ACL", "USERS"]);
    assert_eq!(users.items().len(), 3, "{users:?}");
    assert_eq!(server.command(&["CONFIG", "GET", "port"]).items().len(), 2);
}

#[test]
fn nodes_know_nothing_of_each_other() {
    let nodes = RedisNodes::start(5, &RedisOptions::new());
    nodes[0].command(&["SET", "key", "value"]);
    nodes[1].kill();
    for node in nodes.iter().skip(2) {
        assert_eq!(node.command(&["GET", "key"]), Reply::Nil);
    }
}
