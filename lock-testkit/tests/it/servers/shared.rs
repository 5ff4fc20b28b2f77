//! A server that the tests of a run share.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio, id};

use lock_testkit::servers::PostgresServer;

use crate::eventually;

/// Two processes at a time and one that comes when they are gone get the same.
#[test]
fn postgres_of_a_run_is_one_and_ends_with_its_owner() {
    if env::var_os("TELL").is_some() {
        println!("at //127.0.0.1:{}", PostgresServer::shared().port());
        return;
    }
    let (mut owner, dir) = owner();
    let output = owner.stdout.take().expect("output");
    let mut told = BufReader::new(output)
        .lines()
        .map(|line| line.expect("text"))
        .filter_map(|line| Some(line.split_once("at //")?.1.to_owned()));
    let (first, second) = (told.next().expect("one"), told.next().expect("two"));
    assert_eq!(first, second);
    let mut input = owner.stdin.take().expect("input");
    input.write_all(b"\n").expect("the owner lives");
    assert_eq!(first, told.next().expect("three"));
    let serves = || TcpStream::connect(&first).is_ok();
    assert!(serves() && dir.exists());
    owner.kill().expect("it is killed");
    // Not reaped yet: a zombie is gone.
    eventually(|| !serves() && !dir.exists());
    owner.wait().expect("it is reaped");
}

/// Runs this test as a test runner does: twice at a time, and once more after a line.
fn owner() -> (Child, PathBuf) {
    let run = format!("of-{}", id());
    let script = r#""$0" "$@" & "$0" "$@"; wait; read -r _; "$0" "$@"; read -r _"#;
    let owner = Command::new("sh")
        .args(["-c", script])
        .arg(env::current_exe().expect("a path"))
        .args(["postgres_of_a_run", "--nocapture"])
        .env("TELL", "1")
        .env("NEXTEST_RUN_ID", &run)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    (owner, env::temp_dir().join(format!("polylock-run-{run}")))
}
