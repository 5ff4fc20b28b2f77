//! A server starts, stops, starts again, and ends with the process that started it.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use lock_testkit::servers::{
    DatabaseServer, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer,
};

use crate::eventually;

/// Starts a server, asks it, kills it, starts it again, stops it, and drops it while it is stopped.
fn live(started: impl Deref<Target = DatabaseServer>) {
    let server = &*started;
    server.sql("CREATE TABLE t AS SELECT 42 AS a");
    let read = || Some(server.try_sql("SELECT a FROM t").ok()?[0][0].clone());
    let written = read();
    assert!(written.is_some(), "it does not answer");
    let (port, pid, first) = (server.port(), server.pid(), family(server.pid()));
    server.kill();
    assert!(!first.iter().copied().any(is_alive), "{first:?} live on");
    assert_eq!(read(), None);
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(read(), written, "after a restart");

    server.stop();
    let second = family(server.pid());
    thread::scope(|scope| {
        let answer = scope.spawn(read);
        assert!(!second.iter().copied().any(is_running), "{second:?} run");
        let answered = answer.is_finished();
        server.resume();
        assert!(!answered, "a stopped server answers");
        assert_eq!(answer.join().expect("no panic"), written);
    });
    server.stop();
    let (third, dir) = (family(server.pid()), server.dir().to_owned());
    drop(started);
    assert!(!third.iter().copied().any(is_alive), "{third:?} live on");
    assert!(!dir.exists());
}

#[test]
fn mariadb_lives_and_ends() {
    live(MariaDbServer::start(MariaDbOptions::new()));
}

#[test]
fn postgres_lives_and_ends() {
    live(PostgresServer::start(PostgresOptions::new()));
}

#[test]
#[should_panic(expected = "no_such_setting")]
fn what_a_server_refuses_is_told() {
    let options = PostgresOptions::new().with_config("no_such_setting", "1");
    drop(PostgresServer::start(options));
}

/// A child of its own, because the server has to find its owner dead: it runs this test, too. It
/// leaves the server stopped, which by itself would not even notice.
#[test]
fn a_server_dies_with_the_process_that_started_it() {
    if env::var_os("START_AND_WAIT").is_some() {
        let server = PostgresServer::start(PostgresOptions::new());
        let family: Vec<_> = family(server.pid()).iter().map(u32::to_string).collect();
        server.stop();
        println!("at {} {}", server.dir().display(), family.join(" "));
        loop {
            thread::park();
        }
    }
    let mut owner = Command::new(env::current_exe().expect("a path"))
        .args(["a_server_dies_with", "--nocapture"])
        .env("START_AND_WAIT", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test starts again");
    let output = owner.stdout.take().expect("output");
    let told = BufReader::new(output)
        .lines()
        .map(|line| line.expect("text"))
        .find_map(|line| Some(line.split_once("at /")?.1.to_owned()));
    let told = told.expect("it tells the server");
    let mut words = told.split(' ');
    let dir = Path::new("/").join(words.next().expect("a directory"));
    let family: Vec<u32> = words.map(|pid| pid.parse().expect("a number")).collect();
    assert!(family.len() > 3 && dir.exists());
    assert!(family.iter().copied().all(is_alive));
    owner.kill().expect("it is killed");
    owner.wait().expect("it is reaped");
    eventually(|| !dir.exists());
    assert!(!family.into_iter().any(is_alive));
}

#[test]
fn no_server_of_a_database_runs_as_root_or_leaves_shared_memory() {
    let server = PostgresServer::start(PostgresOptions::new());
    let other = MariaDbServer::start(MariaDbOptions::new());
    for pid in family(server.pid()).into_iter().chain([other.pid()]) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        assert!(!status.contains("Uid:\t0\t"), "{status}");
    }
    // Ids are reused by other servers, so a piece is identified by its creator.
    let maker = server.pid().to_string();
    let has = || {
        let pieces = fs::read_to_string("/proc/sysvipc/shm").expect("a list");
        let mut makers = pieces.lines().map(|line| line.split_whitespace().nth(4));
        makers.any(|pid| pid == Some(&maker))
    };
    assert!(has());
    drop(server);
    assert!(!has());
}

/// A process and what it has started.
fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("it runs");
    let children = children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a number"));
    children.chain([pid]).collect()
}

fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// Neither stopped nor at its end.
fn is_running(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'T' | 'Z'))
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
