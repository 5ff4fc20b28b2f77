//! Data of other programs where a lock would be: left as it is, and told with the way to remove it.

#![cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]

mod common;

use std::process::{Command, Stdio};

use lock_testkit::servers::{
    MariaDbServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
};

use crate::common::Place;

/// A command that takes the lock is refused with 65, says this, and no name of a script.
fn assert_refused(place: &Place, backend: &str, says: &[&str]) {
    for command in [
        &["run", "-n", "k", "--", "touch", "ran"][..],
        &["run", "-w", "1s", "k", "--", "touch", "ran"],
        &["run", "-n", "--shared", "k", "--", "touch", "ran"],
        &["run", "-n", "a", "k", "--", "touch", "ran"],
    ] {
        let (code, said) = place.code(&[&["--backend", backend], command].concat());
        assert_eq!(code, 65, "{backend} {command:?}: {said}");
        for text in says {
            assert!(said.contains(text), "{backend} {command:?}: {text}: {said}");
        }
        assert!(
            !said.contains("script") && !said.contains("internal"),
            "{said}"
        );
    }
    assert!(!place.file("ran").exists());
}

/// Runs the line that was told, as it stands there.
fn run_line(said: &str, begins: &str) {
    let at = said.find(begins).expect("the command");
    let line = said[at..].lines().next().expect("a line");
    // The key of the lock stands behind the message.
    let line = line.split(" (key ").next().expect("a part");
    let status = Command::new("sh")
        .args(["-c", line])
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("a shell").success(), "{line}");
}

#[test]
fn keys_of_other_types_on_redis_are_named() {
    let server = RedisServer::start(RedisOptions::new());
    let url = server.url();
    let place = Place::new();
    let redis = |args: &[&str]| {
        let port = server.port().to_string();
        let mut command = Command::new("redis-cli");
        let output = command.args(["-p", &port]).args(args).output();
        output.expect("redis-cli").stdout
    };
    let cases: [(&[&str], &str, &str); 5] = [
        (&["RPUSH", "lock:k", "a"], "a list", "lock:k"),
        (&["HSET", "lock:k", "a", "b"], "a hash", "lock:k"),
        (&["ZADD", "lock:k", "1", "a"], "a sorted set", "lock:k"),
        (&["XADD", "lock:k", "*", "a", "b"], "a stream", "lock:k"),
        (&["SADD", "{lock:k}:fence", "a"], "a set", "{lock:k}:fence"),
    ];
    for (write, what, key) in cases {
        // What the run before has left.
        redis(&["DEL", "{lock:k}:fence"]);
        redis(write);
        let before = redis(&["DUMP", key]);
        let remove = format!("redis-cli -h 127.0.0.1 -p {} UNLINK '{key}'", server.port());
        let has = format!("has {what} at \"{key}\"");
        assert_refused(&place, &url, &[&has, &remove, "left as it is"]);
        for query in [&["inspect", "k"][..], &["break", "--yes", "k"]] {
            let (code, said) = place.code(&[&["--backend", &url], query].concat());
            if key == "lock:k" {
                assert_eq!(code, 65, "{query:?}: {said}");
                assert!(
                    said.contains(&has) && said.contains("(key \"k\")"),
                    "{said}"
                );
            }
        }
        assert_eq!(redis(&["DUMP", key]), before, "{what} is changed");
        let (_, said) = place.code(&["--backend", &url, "run", "-n", "k", "--", "true"]);
        run_line(&said, "redis-cli");
        let (code, said) = place.code(&["--backend", &url, "run", "-n", "k", "--", "true"]);
        assert_eq!(code, 0, "{what}: {said}");
    }
}

#[test]
fn the_command_for_redis_has_the_database() {
    let server = RedisServer::start(RedisOptions::new());
    let port = server.port().to_string();
    let status = Command::new("redis-cli")
        .args(["-p", &port, "-n", "2", "LPUSH", "it's", "a"])
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("redis-cli").success());
    let place = Place::new();
    let url = format!("redis://127.0.0.1:{port}/2?namespace=");
    let line = ["--backend", &url, "run", "-n", "it's", "--", "true"];
    let (code, said) = place.code(&line);
    assert_eq!(code, 65, "{said}");
    run_line(&said, "redis-cli");
    assert_eq!(place.code(&line).0, 0);
}

#[test]
fn tables_of_other_programs_in_sqlite_are_named() {
    let place = Place::new();
    let sql = |text: &str| {
        let script = "import sqlite3, sys\nc = sqlite3.connect('other.db')\n\
                      print(c.execute(sys.argv[1]).fetchall())\nc.commit()";
        let mut command = Command::new("python3");
        place.settle(&mut command);
        let output = command.args(["-c", script, text]).output();
        let output = output.expect("python3");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    sql("CREATE TABLE polylock_locks (name TEXT, price INT)");
    sql("INSERT INTO polylock_locks VALUES ('bread', 3)");
    assert_refused(
        &place,
        "sqlite:other.db",
        &[
            "the table polylock_locks has the columns name, price",
            "table=NAME",
            "/other.db\" 'DROP TABLE polylock_locks'",
        ],
    );
    assert_eq!(sql("SELECT * FROM polylock_locks"), "[('bread', 3)]\n");
    let other = "sqlite:other.db?table=locks";
    let (code, said) = place.code(&["--backend", other, "run", "-n", "k", "--", "true"]);
    assert_eq!(code, 0, "{said}");
    sql("UPDATE locks SET id = X'00', expires_boot = 9000000000000000000 WHERE key = X'6B'");
    let remove = "DELETE FROM locks WHERE CAST(key AS TEXT) = 'k'";
    assert_refused(
        &place,
        other,
        &["a row that polylock has not written", remove],
    );
    sql(remove);
    let (code, said) = place.code(&["--backend", other, "run", "-n", "k", "--", "true"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn tables_of_other_programs_in_postgres_are_named() {
    let server = PostgresServer::shared();
    let place = Place::new();
    for mode in ["row", "lease", "advisory"] {
        let database = server.database();
        server.sql(
            &database,
            "CREATE TABLE polylock_locks (name text, price int)",
        );
        let url = format!("{database}?mode={mode}");
        let remove = "DROP TABLE \"public\".\"polylock_locks\"";
        assert_refused(
            &place,
            &url,
            &["has the columns name, price", " of ", remove],
        );
        server.sql(&database, remove);
        let (code, said) = place.code(&["--backend", &url, "run", "-n", "k", "--", "true"]);
        assert_eq!(code, 0, "{said}");
    }
    let url = format!("{}?mode=lease", server.database());
    let (code, said) = place.code(&["--backend", &url, "run", "-n", "k", "--", "true"]);
    assert_eq!(code, 0, "{said}");
    let database = url.split('?').next().expect("a URL");
    server.sql(
        database,
        "UPDATE polylock_locks SET last_token = -1, free_at = 0, id = NULL WHERE kind = 1",
    );
    let remove = "DELETE FROM polylock_locks WHERE kind = 1 AND lock_key = 'k'";
    let (code, said) = place.code(&["--backend", &url, "run", "-n", "k", "--", "true"]);
    assert_eq!(code, 65, "{said}");
    assert!(said.contains(remove), "{said}");
    server.sql(database, remove);
    let (code, said) = place.code(&["--backend", &url, "run", "-n", "k", "--", "true"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn tables_of_other_programs_in_mariadb_are_named() {
    let server = MariaDbServer::shared();
    let place = Place::new();
    for mode in ["row", "lease", "advisory"] {
        let database = server.database();
        server.sql(
            &database,
            "CREATE TABLE polylock_locks (name text, price int)",
        );
        let url = format!("{database}?mode={mode}");
        let remove = "DROP TABLE `polylock_locks`";
        assert_refused(&place, &url, &["has the columns name, price", remove]);
        server.sql(&database, remove);
        let (code, said) = place.code(&["--backend", &url, "run", "-n", "k", "--", "true"]);
        assert_eq!(code, 0, "{said}");
    }
}

#[test]
fn ephemeral_nodes_of_other_programs_are_named() {
    let server = ZooKeeperServer::shared();
    let root = format!("/lockctl-foreign-{}", std::process::id());
    let url = format!("{}{root}", server.url());
    let place = Place::new();
    let (code, said) = place.code(&["--backend", &url, "run", "-n", "other", "--", "true"]);
    assert_eq!(code, 0, "{said}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _session = runtime.block_on(async {
        let address = server.url();
        let address = address.split("://").nth(1).expect("an address").to_owned();
        let client = zookeeper_client::Client::connect(&address)
            .await
            .expect("a session");
        let ephemeral =
            zookeeper_client::CreateMode::Ephemeral.with_acls(zookeeper_client::Acls::anyone_all());
        let node = client
            .create(&format!("{root}/k"), b"data", &ephemeral)
            .await;
        node.expect("a node");
        client
    });
    let says = format!("{root}/k is an ephemeral node with 4 bytes of data, which session 0x");
    let remove = format!(" delete {root}/k");
    assert_refused(&place, &url, &[&says, "zkCli.sh -server ", &remove]);
}
