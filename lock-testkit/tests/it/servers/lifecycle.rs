//! A server of any kind starts, stops, starts again, and ends with the process that started it.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use lock_testkit::servers::{
    Fsync, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, RedisOptions,
    RedisServer, ServerProcess, ZooKeeperOptions, ZooKeeperServer,
};

use crate::support::{eventually, family, is_alive, is_running};

/// Starts a server, asks it, kills it, starts it again, stops it, and drops it while it is stopped.
///
/// `write` leaves something that `read` finds again; `read` finds nothing without a server.
fn live<S: Sync>(
    start: fn() -> S,
    process: fn(&S) -> &ServerProcess,
    write: fn(&S),
    read: fn(&S) -> Option<String>,
) {
    let started = start();
    let (server, read) = (process(&started), || read(&started));
    write(&started);
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
    live(
        || MariaDbServer::start(MariaDbOptions::new()),
        |server| server,
        |server| drop(server.sql("CREATE TABLE t AS SELECT 42 AS a")),
        |server| Some(server.try_sql("SELECT a FROM t").ok()?[0][0].clone()),
    );
}

#[test]
fn postgres_lives_and_ends() {
    live(
        || PostgresServer::start(PostgresOptions::new()),
        |server| server,
        |server| drop(server.sql("CREATE TABLE t AS SELECT 42 AS a")),
        |server| Some(server.try_sql("SELECT a FROM t").ok()?[0][0].clone()),
    );
}

#[test]
fn redis_lives_and_ends() {
    live(
        || RedisServer::start(RedisOptions::new().with_aof(Fsync::Always)),
        |server| server,
        |server| drop(server.command(&["SET", "key", "value"])),
        |server| server.try_command(&["GET", "key"]).ok()?.text(),
    );
}

#[test]
fn zookeeper_lives_and_ends() {
    live(
        || ZooKeeperServer::start(ZooKeeperOptions::new()),
        |server| server,
        |_| {},
        |server| server.try_four_letter("ruok").ok(),
    );
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
