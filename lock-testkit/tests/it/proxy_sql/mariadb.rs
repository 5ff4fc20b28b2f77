use std::process::{Command, Output};
use std::time::Instant;

use lock_testkit::proxy::{Fate, Proxy, Then};
use lock_testkit::servers::{MariaDbOptions, MariaDbServer};

use super::{Dripping, FATES, MOMENT, is_insert, printed, run, words};

#[test]
fn faults_meet_the_requests_that_they_are_planned_for() {
    let server = MariaDbServer::start(MariaDbOptions::new());
    let proxy = Proxy::mysql(server.port());
    let all = proxy.watch(|_| true);
    let text = "CREATE TABLE t (a int);\nDELIMITER //\nSELECT 1; SELECT 'a', 'b'; DO 1//\n";
    let output = mariadb(&proxy, text);
    assert_eq!(printed(&output).as_deref(), Some("1\na\tb\n"), "{output:?}");
    let seen = words(&all, 4);
    let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["LOGIN", "QUERY", "QUERY", "QUIT"]);
    assert_eq!(seen[2].1, "SELECT 1; SELECT 'a', 'b'; DO 1");
    for (number, (fate, arrives)) in FATES.into_iter().enumerate() {
        let planned = proxy.plan(is_insert, fate);
        let output = mariadb(&proxy, &format!("INSERT INTO t VALUES ({number});\n"));
        assert_eq!(printed(&output), None, "{fate:?}: {output:?}");
        assert_eq!(planned.struck(), 1);
        let there = server.sql(&format!("SELECT count(*) FROM t WHERE a = {number}"));
        assert_eq!(there[0][0] == "1", arrives, "{fate:?}");
    }
    let began = Instant::now();
    proxy.plan(is_insert, Fate::LateReply(MOMENT));
    let text = "INSERT INTO t VALUES (9);\nSELECT max(a) FROM t;\n";
    let output = mariadb(&proxy, text);
    assert_eq!(printed(&output).as_deref(), Some("9\n"), "{output:?}");
    assert!(began.elapsed() >= MOMENT);
}

#[test]
fn a_message_in_pieces_is_understood() {
    let server = MariaDbServer::start(MariaDbOptions::new());
    let drip = Dripping::new(server.port(), Proxy::mysql);
    let all = drip.proxy.watch(|request| request.is("QUERY"));
    let output = mariadb(
        &drip.client,
        "SELECT 'a long text that is no end';\nSELECT 1;\n",
    );
    let expected = "a long text that is no end\n1\n";
    assert_eq!(printed(&output).as_deref(), Some(expected), "{output:?}");
    assert_eq!(words(&all, 2).len(), 2);
    drip.proxy.plan(is_insert, Fate::LostReply(Then::Cut));
    let output = mariadb(
        &drip.client,
        "CREATE TABLE t (a int);\nINSERT INTO t VALUES (1);\n",
    );
    assert_eq!(printed(&output), None, "{output:?}");
    assert_eq!(server.sql("SELECT a FROM t"), [["1"]]);
}

fn mariadb(proxy: &Proxy, text: &str) -> Output {
    let mut command = Command::new("mariadb");
    command
        .args([
            "--no-defaults",
            "--batch",
            "--skip-column-names",
            "--skip-ssl",
        ])
        .args(["--skip-reconnect", "-h", "127.0.0.1", "-P"])
        .args([&proxy.port().to_string(), "-u", "test", "test"])
        .env("MYSQL_PWD", "test");
    run(&mut command, text)
}
