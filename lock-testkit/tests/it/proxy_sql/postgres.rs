use std::process::{Command, Output};
use std::time::Instant;

use lock_testkit::proxy::{Fate, Proxy, Then};
use lock_testkit::servers::{PgBouncer, PoolMode, PostgresOptions, PostgresServer};

use super::{Dripping, FATES, MOMENT, is_insert, printed, run, words};

#[test]
fn faults_meet_the_requests_that_they_are_planned_for() {
    let server = PostgresServer::start(PostgresOptions::new());
    let proxy = Proxy::postgres(server.port());
    let all = proxy.watch(|_| true);
    let output = psql(&proxy, "CREATE TABLE t (a int);\nSELECT 1, 'a';\n");
    assert_eq!(printed(&output).as_deref(), Some("1|a\n"), "{output:?}");
    let seen = words(&all, 7);
    let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
    let expected = ["TLS", "STARTUP", "LOGIN", "LOGIN", "QUERY", "QUERY", "QUIT"];
    assert_eq!(names, expected);
    assert_eq!(seen[5].1, "SELECT 1, 'a';");
    for (number, (fate, arrives)) in FATES.into_iter().enumerate() {
        let planned = proxy.plan(is_insert, fate);
        let output = psql(&proxy, &format!("INSERT INTO t VALUES ({number});\n"));
        assert_eq!(printed(&output), None, "{fate:?}: {output:?}");
        assert_eq!(planned.struck(), 1);
        let there = server.sql(&format!("SELECT count(*) FROM t WHERE a = {number}"));
        assert_eq!(there[0][0] == "1", arrives, "{fate:?}");
    }
    let began = Instant::now();
    proxy.plan(is_insert, Fate::LateReply(MOMENT));
    let output = psql(&proxy, "INSERT INTO t VALUES (9);\nSELECT max(a) FROM t;\n");
    assert_eq!(printed(&output).as_deref(), Some("9\n"), "{output:?}");
    assert!(began.elapsed() >= MOMENT);
}

#[test]
fn a_pooler_may_stand_behind() {
    let server = PostgresServer::start(PostgresOptions::new());
    let pooler = PgBouncer::before(&server, PoolMode::Transaction);
    let proxy = Proxy::postgres(pooler.port());
    let output = psql(&proxy, "SELECT 1;\n");
    assert_eq!(printed(&output).as_deref(), Some("1\n"), "{output:?}");
}

#[test]
fn a_message_in_pieces_is_understood() {
    let server = PostgresServer::start(PostgresOptions::new());
    let drip = Dripping::new(server.port(), Proxy::postgres);
    let all = drip.proxy.watch(|request| request.is("QUERY"));
    let output = psql(
        &drip.client,
        "SELECT 'a long text that is no end';\nSELECT 1;\n",
    );
    let expected = "a long text that is no end\n1\n";
    assert_eq!(printed(&output).as_deref(), Some(expected), "{output:?}");
    assert_eq!(words(&all, 2).len(), 2);
    drip.proxy.plan(is_insert, Fate::LostReply(Then::Cut));
    let output = psql(
        &drip.client,
        "CREATE TABLE t (a int);\nINSERT INTO t VALUES (1);\n",
    );
    assert_eq!(printed(&output), None, "{output:?}");
    assert_eq!(server.sql("SELECT a FROM t"), [["1"]]);
}

fn psql(proxy: &Proxy, text: &str) -> Output {
    let mut command = Command::new("psql");
    command
        .args(["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1"])
        .args(["-h", "127.0.0.1", "-p", &proxy.port().to_string()])
        .args(["-U", "test", "-d", "test", "-f", "-"])
        .env("PGPASSWORD", "test");
    run(&mut command, text)
}
