//! The fault proxy in front of real databases with their own clients: a planned fault strikes its
//! request.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lock_testkit::proxy::{Command as Request, Direction, Fate, Proxy, ReplyOrder, Then, Watch};
use lock_testkit::servers::{
    DatabaseServer, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer,
};

/// A kind of server with its own client.
struct Kind {
    proxy: fn(u16) -> Proxy,
    client: fn(&Proxy) -> Command,
    /// Two requests, with the names of all that the client makes of them and what it prints.
    statements: &'static str,
    requests: &'static [&'static str],
    printed: &'static str,
    /// The text of the last one but the farewell, as the server gets it.
    last: &'static str,
}

const MARIADB: Kind = Kind {
    proxy: Proxy::mysql,
    client: mariadb,
    statements: "CREATE TABLE t (a int);\nDELIMITER //\nSELECT 1; SELECT 'a', 'b'; DO 1//\n",
    requests: &["LOGIN", "QUERY", "QUERY", "COM1"],
    printed: "1\na\tb\n",
    last: "SELECT 1; SELECT 'a', 'b'; DO 1",
};

const POSTGRES: Kind = Kind {
    proxy: Proxy::postgres,
    client: psql,
    statements: "CREATE TABLE t (a int);\nSELECT 1, 'a';\n",
    requests: &[
        "STARTUP", "STARTUP", "SYNC", "SYNC", "QUERY", "QUERY", "SYNC",
    ],
    printed: "1|a\n",
    last: "SELECT 1, 'a';",
};

#[test]
fn faults_meet_the_requests_of_mariadb_that_they_are_planned_for() {
    let server = MariaDbServer::start(MariaDbOptions::new());
    faults_meet_their_requests(&server, &MARIADB);
}

#[test]
fn faults_meet_the_requests_of_postgres_that_they_are_planned_for() {
    let server = PostgresServer::start(PostgresOptions::new());
    faults_meet_their_requests(&server, &POSTGRES);
}

fn faults_meet_their_requests(server: &DatabaseServer, kind: &Kind) {
    let proxy = (kind.proxy)(server.port());
    let all = proxy.watch(|_| true);
    let output = kind.run(&proxy, kind.statements);
    assert_eq!(printed(&output).as_deref(), Some(kind.printed));
    let seen = words(&all, kind.requests.len());
    let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, kind.requests);
    assert_eq!(seen[seen.len() - 2].1, kind.last);
    for (number, (fate, arrives)) in FATES.into_iter().enumerate() {
        let planned = proxy.plan(is_insert, fate);
        let output = kind.run(&proxy, &format!("INSERT INTO t VALUES ({number});\n"));
        assert_eq!(printed(&output), None, "{fate:?}: {output:?}");
        assert_eq!(planned.struck(), 1);
        let there = server.sql(&format!("SELECT count(*) FROM t WHERE a = {number}"));
        assert_eq!(there[0][0] == "1", arrives, "{fate:?}");
    }
    let began = Instant::now();
    proxy.plan(is_insert, Fate::LateReply(DELAY));
    let output = kind.run(&proxy, "INSERT INTO t VALUES (9);\nSELECT max(a) FROM t;\n");
    assert_eq!(printed(&output).as_deref(), Some("9\n"), "{output:?}");
    assert!(
        began.elapsed() >= DELAY,
        "replied after {:?}",
        began.elapsed()
    );
}

#[test]
fn a_message_of_mariadb_in_pieces_is_understood() {
    let server = MariaDbServer::start(MariaDbOptions::new());
    pieces_are_understood(&server, &MARIADB);
}

#[test]
fn a_message_of_postgres_in_pieces_is_understood() {
    let server = PostgresServer::start(PostgresOptions::new());
    pieces_are_understood(&server, &POSTGRES);
}

/// The proxy between two others that deliver byte by byte: whatever it reads is cut somewhere.
fn pieces_are_understood(server: &DatabaseServer, kind: &Kind) {
    let slow_server = Proxy::of_bytes(server.port());
    let proxy = (kind.proxy)(slow_server.port());
    let slow_client = Proxy::of_bytes(proxy.port());
    for slow in [&slow_server, &slow_client] {
        slow.set_drip(Direction::Both, 1, Duration::ZERO);
    }
    let all = proxy.watch(|request| request.is("QUERY"));
    let output = kind.run(
        &slow_client,
        "SELECT 'a long text that is no end';\nSELECT 1;\n",
    );
    let expected = "a long text that is no end\n1\n";
    assert_eq!(printed(&output).as_deref(), Some(expected), "{output:?}");
    assert_eq!(words(&all, 2).len(), 2);
    proxy.plan(is_insert, Fate::LostReply(Then::Cut));
    let output = kind.run(
        &slow_client,
        "CREATE TABLE t (a int);\nINSERT INTO t VALUES (1);\n",
    );
    assert_eq!(printed(&output), None, "{output:?}");
    assert_eq!(server.sql("SELECT a FROM t"), [["1"]]);
}

#[test]
#[should_panic(expected = "cannot be duplicated")]
fn a_request_is_not_duplicated() {
    let (after, answer) = (Duration::ZERO, ReplyOrder::First);
    Proxy::postgres(1).plan(|_| true, Fate::Duplicated { after, answer });
}

impl Kind {
    /// Runs the client with statements as its input.
    fn run(&self, proxy: &Proxy, text: &str) -> Output {
        let mut child = (self.client)(proxy)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the client is installed");
        let mut input = child.stdin.take().expect("it has an input");
        // One that is gone already reads nothing.
        input.write_all(text.as_bytes()).ok();
        drop(input);
        child.wait_with_output().expect("it ends")
    }
}

fn mariadb(proxy: &Proxy) -> Command {
    let mut command = Command::new("mariadb");
    command
        .args(["--no-defaults", "--batch", "--skip-column-names"])
        .args(["--skip-ssl", "--skip-reconnect", "-h", "127.0.0.1"])
        .args(["-P", &proxy.port().to_string(), "-u", "test", "test"])
        .env("MYSQL_PWD", "test");
    command
}

fn psql(proxy: &Proxy) -> Command {
    let mut command = Command::new("psql");
    command
        .args(["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1"])
        .args(["-h", "127.0.0.1", "-p", &proxy.port().to_string()])
        .args(["-U", "test", "-d", "test", "-f", "-"])
        .env("PGPASSWORD", "test");
    command
}

/// What it printed, if it ended well.
fn printed(output: &Output) -> Option<String> {
    let text = || String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(text)
}

/// The first two words of so many requests; a client does not wait until its last one arrives.
fn words(watch: &Watch, count: usize) -> Vec<(String, String)> {
    let two = |request: &Request| (request.arg(0).into_owned(), request.arg(1).into_owned());
    let began = Instant::now();
    while watch.seen().len() < count && began.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(5));
    }
    watch.seen().iter().map(two).collect()
}

fn is_insert(request: &Request) -> bool {
    request.arg(1).starts_with("INSERT")
}

const DELAY: Duration = Duration::from_millis(200);

/// What keeps a client from an answer, and whether the server gets the request.
const FATES: [(Fate, bool); 5] = [
    (Fate::LostRequest(Then::Cut), false),
    (Fate::LostReply(Then::Cut), true),
    (Fate::LostReply(Then::CutAfter(DELAY)), true),
    (Fate::CutRequest(5), false),
    (Fate::CutReply(5), true),
];
