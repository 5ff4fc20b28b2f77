//! Private MariaDB servers: they start, obey, and end with whoever started them.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lock_testkit::servers::{MariaDbOptions, MariaDbServer, ServerCertificate, TlsFiles};

#[test]
fn a_server_starts_answers_and_ends() {
    let server = start();
    let port = server.port();
    assert_eq!(
        server.url(),
        format!("mysql://test:test@127.0.0.1:{port}/test")
    );
    let rows = server.sql(r"SELECT 1, NULL; SELECT 'a\n\tb\\'");
    assert_eq!(rows, [vec!["1", "NULL"], vec!["a\n\tb\\"]]);
    let who = "SELECT user(), database()";
    assert_eq!(server.sql(who), [["root@localhost", "test"]]);
    assert_eq!(
        server.sql_as("test", "test", who),
        [["test@localhost", "test"]]
    );
    assert!(server.try_sql_as("test", "wrong", who).is_err());
    assert!(
        server
            .try_sql_as("test", "test", "SELECT * FROM mysql.user")
            .is_err()
    );
    assert_eq!(by_tcp(&server, "root", "root", &[]), "root@127.0.0.1\n");
    assert_eq!(by_tcp(&server, "test", "test", &[]), "test@127.0.0.1\n");
    assert_eq!(by_tcp(&server, "root", "", &[]), "");
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    assert!(!status.contains("Uid:\t0\t"), "{status}");
    drop(server);
    assert!(!is_alive(pid));
    assert!(!dir.exists());
}

#[test]
fn the_user_test_makes_tables_and_is_counted() {
    let server = start();
    let rows = server.sql_as("test", "test", "CREATE TABLE t (a int); SELECT 7");
    assert_eq!(rows, [["7"]]);
    assert_eq!(server.connections(), 0);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| server.try_sql_as("test", "test", "SELECT sleep(60)"));
        eventually(|| server.connections() == 1);
        server.sql("KILL USER test");
        assert!(sleeper.join().expect("no panic").is_err());
    });
}

#[test]
fn a_restart_after_a_kill_keeps_what_was_committed() {
    let server = start();
    server.sql("CREATE TABLE t AS SELECT 42 AS a");
    let (port, pid) = (server.port(), server.pid());
    server.kill();
    assert!(!is_alive(pid));
    assert!(server.try_sql("SELECT 1").is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.sql("SELECT a FROM t"), [["42"]]);
}

#[test]
fn a_stopped_server_answers_when_it_goes_on() {
    let server = start();
    server.stop();
    thread::scope(|scope| {
        let answer = scope.spawn(|| server.sql("SELECT 1"));
        eventually(|| state(server.pid()) == Some('T'));
        let answered = answer.is_finished();
        server.resume();
        assert!(!answered);
        assert_eq!(answer.join().expect("no panic"), [["1"]]);
    });
    server.stop();
    let pid = server.pid();
    drop(server);
    assert!(!is_alive(pid), "a stopped server is not killed");
}

#[test]
fn options_take_effect() {
    let options = MariaDbOptions::new()
        .with_config("wait_timeout", "77")
        .with_durability(true);
    let server = MariaDbServer::start(options);
    let variables = "SELECT @@global.wait_timeout, @@innodb_flush_log_at_trx_commit,
        @@collation_server";
    assert_eq!(server.sql(variables), [["77", "1", "utf8mb4_general_ci"]]);
}

#[test]
fn tls_is_all_that_tcp_takes() {
    let files = TlsFiles::new(ServerCertificate::Valid);
    let server = MariaDbServer::start(MariaDbOptions::new().with_tls(&files));
    assert_eq!(server.sql("SELECT @@have_ssl"), [["YES"]]);
    let ca = format!("--ssl-ca={}", files.ca().display());
    let verified = [ca.as_str(), "--ssl-verify-server-cert"];
    assert_eq!(
        by_tcp(&server, "test", "test", &verified),
        "test@127.0.0.1\n"
    );
    assert_eq!(by_tcp(&server, "test", "test", &["--skip-ssl"]), "");
}

#[test]
fn each_asks_for_a_database_of_its_own() {
    let server = start();
    let (one, two) = (server.database(), server.database());
    assert_ne!(one, two);
    let name = one.rsplit('/').next().expect("a name");
    let rows = server.sql_as(
        "test",
        "test",
        &format!("USE {name}; CREATE TABLE t (a int); SHOW TABLES"),
    );
    assert_eq!(rows, [["t"]]);
}

#[test]
#[should_panic(expected = "no_such_setting")]
fn what_the_server_refuses_is_told() {
    let options = MariaDbOptions::new().with_config("no_such_setting", "1");
    drop(MariaDbServer::start(options));
}

fn start() -> MariaDbServer {
    MariaDbServer::start(MariaDbOptions::new())
}

/// Who one is there, if it takes the connection; past the testkit.
fn by_tcp(server: &MariaDbServer, user: &str, password: &str, more: &[&str]) -> String {
    let client = Command::new("mariadb")
        .args(["--no-defaults", "-N", "-B", "-h", "127.0.0.1", "-u", user])
        .args(["-P", &server.port().to_string(), "-e", "SELECT user()"])
        .args(more)
        .env("MYSQL_PWD", password)
        .output();
    let printed = client.expect("mariadb").stdout;
    String::from_utf8(printed).expect("text")
}

fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
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
