//! The MariaDB server that the tests of a run share.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio, id};
use std::thread;
use std::time::{Duration, Instant};

use lock_testkit::servers::MariaDbServer;

#[test]
fn the_server_of_a_run_is_one_and_ends_with_its_owner() {
    if env::var_os("TELL").is_some() {
        let port = MariaDbServer::shared().port();
        println!("at mysql://127.0.0.1:{port}");
        return;
    }
    one_for_all("the_server_of_a_run");
}

#[test]
fn each_test_has_a_database_of_its_own() {
    let shared = MariaDbServer::shared();
    let (one, two) = (shared.database(), shared.database());
    assert_ne!(one, two);
    shared.sql(&one, "CREATE TABLE t AS SELECT 1 AS a");
    assert_eq!(shared.sql(&one, "SELECT a FROM t"), [["1"]]);
    assert_eq!(
        MariaDbServer::shared().sql(&one, "SELECT a FROM t"),
        [["1"]]
    );
    shared.sql(&two, "CREATE TABLE t AS SELECT 2 AS a");
    assert_eq!(shared.connections(&one), 0);
    assert!(one.contains("://test:test@127.0.0.1:"));
}

/// Two processes at a time and one that comes when they are gone get the same.
fn one_for_all(test: &str) {
    let (mut owner, dir) = owner(test);
    let output = owner.stdout.take().expect("output");
    let mut told = BufReader::new(output)
        .lines()
        .map(|line| line.expect("text"))
        .filter_map(|line| Some(line.split_once("at mysql://")?.1.to_owned()));
    let (first, second) = (told.next().expect("one"), told.next().expect("two"));
    assert_eq!(first, second);
    let mut input = owner.stdin.take().expect("input");
    input.write_all(b"\n").expect("the owner lives");
    assert_eq!(first, told.next().expect("three"));
    let serves = || first.split(',').any(|at| TcpStream::connect(at).is_ok());
    assert!(serves() && dir.exists());
    owner.kill().expect("it is killed");
    let killed = Instant::now();
    // Not reaped yet: a zombie is gone.
    while serves() || dir.exists() {
        assert!(killed.elapsed() < Duration::from_secs(10), "it lives on");
        thread::sleep(Duration::from_millis(5));
    }
    owner.wait().expect("it is reaped");
}

/// Runs this test as a test runner does: twice at a time, and once more after a line.
fn owner(test: &str) -> (Child, PathBuf) {
    let run = format!("of-{}-{test}", id());
    let script = r#""$0" "$@" & "$0" "$@"; wait; read -r _; "$0" "$@"; read -r _"#;
    let owner = Command::new("sh")
        .args(["-c", script])
        .arg(env::current_exe().expect("a path"))
        .args([test, "--nocapture"])
        .env("TELL", "1")
        .env("NEXTEST_RUN_ID", &run)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    (owner, env::temp_dir().join(format!("polylock-run-{run}")))
}
