//! Private PostgreSQL servers: they start, obey, and end with whoever started them.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lock_testkit::servers::{PostgresOptions, PostgresServer, ServerCertificate, TlsFiles};

#[test]
fn a_server_starts_answers_and_ends() {
    let server = start();
    let port = server.port();
    assert_eq!(
        server.url(),
        format!("postgres://test:test@127.0.0.1:{port}/test")
    );
    assert_eq!(
        server.sql("SELECT 1, NULL; SELECT E'a\\nb'"),
        [vec!["1", ""], vec!["a\nb"]]
    );
    let who = "SELECT current_user, current_database(), rolsuper
        FROM pg_roles WHERE rolname = current_user";
    assert_eq!(server.sql(who), [["postgres", "test", "t"]]);
    assert_eq!(server.sql_as("test", "test", who), [["test", "test", "f"]]);
    assert!(server.try_sql_as("test", "wrong", who).is_err());
    let (pid, dir, family) = (server.pid(), server.dir().to_owned(), family(&server));
    assert!(family.len() > 3, "{family:?}");
    drop(server);
    assert!(!is_alive(pid));
    assert!(!family.into_iter().any(is_alive));
    assert!(!dir.exists());
}

#[test]
fn the_role_test_makes_tables_and_is_counted() {
    let server = start();
    let rows = server.sql_as(
        "test",
        "test",
        "CREATE TABLE t (a int); CREATE SCHEMA s; SELECT 7",
    );
    assert_eq!(rows, [["7"]]);
    assert_eq!(server.backends(), 0);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| server.try_sql_as("test", "test", "SELECT pg_sleep(60)"));
        eventually(|| server.backends() == 1);
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'test'");
        assert!(sleeper.join().expect("no panic").is_err());
    });
}

#[test]
fn a_restart_after_a_kill_keeps_what_was_committed() {
    let server = start();
    server.sql("CREATE TABLE t AS SELECT 42 AS a");
    let (port, pid, family) = (server.port(), server.pid(), family(&server));
    server.kill();
    assert!(!is_alive(pid));
    assert!(!family.into_iter().any(is_alive));
    assert!(server.try_sql("SELECT 1").is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.sql("SELECT a FROM t"), [["42"]]);
    let log = fs::read_to_string(server.dir().join("log")).expect("a log");
    assert!(log.contains("automatic recovery in progress"), "{log}");
}

#[test]
fn a_stopped_server_answers_when_it_goes_on() {
    let server = start();
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| server.sql("SELECT pg_sleep(0.3)"));
        server.stop();
        let stopped = family(&server).into_iter().all(is_stopped);
        server.resume();
        assert!(stopped);
        assert_eq!(sleeper.join().expect("no panic"), [[""]]);
    });
    server.stop();
    let family = family(&server);
    drop(server);
    assert!(
        !family.into_iter().any(is_alive),
        "a stopped server is not killed"
    );
}

#[test]
fn options_take_effect() {
    let options = PostgresOptions::new()
        .with_config("idle_in_transaction_session_timeout", "1500ms")
        .with_user("o'\"brien", "it's");
    let server = PostgresServer::start(options);
    let shown = |name: &str| server.sql(&format!("SHOW {name}"))[0][0].clone();
    assert_eq!(shown("idle_in_transaction_session_timeout"), "1500ms");
    assert_eq!(
        (shown("fsync"), shown("synchronous_commit")),
        ("off".to_owned(), "on".to_owned())
    );
    assert_eq!(
        server.sql_as("o'\"brien", "it's", "SELECT current_user"),
        [["o'\"brien"]]
    );
    assert!(
        server
            .try_sql_as("o'\"brien", "it's", "CREATE TABLE t (a int)")
            .is_err()
    );
    let durable = PostgresServer::start(PostgresOptions::new().with_durability(true));
    assert_eq!(durable.sql("SHOW fsync"), [["on"]]);
}

#[test]
fn tls_is_all_that_tcp_takes() {
    let files = TlsFiles::new(ServerCertificate::Valid);
    let server = PostgresServer::start(PostgresOptions::new().with_tls(&files));
    assert_eq!(server.sql("SHOW ssl"), [["on"]]);
    let ca = files.ca();
    let verified = format!("?sslmode=verify-full&sslrootcert={}", ca.display());
    assert!(connects(&(server.url() + &verified)));
    assert!(!connects(&(server.url() + "?sslmode=disable")));
}

#[test]
#[should_panic(expected = "no_such_setting")]
fn what_the_server_refuses_is_told() {
    let options = PostgresOptions::new().with_config("no_such_setting", "1");
    drop(PostgresServer::start(options));
}

#[test]
fn no_server_runs_as_root_or_leaves_shared_memory() {
    let server = start();
    for pid in family(&server) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        assert!(!status.contains("Uid:\t0\t"), "{status}");
    }
    // Other servers get ids that are free again, so its maker tells a piece apart.
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

/// A child of its own, because the server has to find its owner dead: it runs this test, too. It
/// leaves the server stopped, which by itself would not even notice.
#[test]
fn a_server_dies_with_the_process_that_started_it() {
    if env::var_os("START_AND_WAIT").is_some() {
        let server = start();
        let family: Vec<_> = family(&server).iter().map(u32::to_string).collect();
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

fn start() -> PostgresServer {
    PostgresServer::start(PostgresOptions::new())
}

/// By psql, past the testkit.
fn connects(url: &str) -> bool {
    let psql = Command::new("psql")
        .args(["-X", "-w", "-c", "SELECT 1", url])
        // Whoever runs this may have certificates at home, or none that psql may look for.
        .env("HOME", env::temp_dir())
        .output();
    psql.expect("psql").status.success()
}

/// The postmaster and what it has started.
fn family(server: &PostgresServer) -> Vec<u32> {
    let pid = server.pid();
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

fn is_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn eventually(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "it does not happen");
        thread::sleep(Duration::from_millis(5));
    }
}
