//! PgBouncer in front of a private PostgreSQL server.

use std::fs;
use std::process::Command;

use lock_testkit::servers::{PgBouncer, PoolMode, PostgresOptions, PostgresServer};

#[test]
fn each_mode_passes_a_statement() {
    let server = PostgresServer::start(PostgresOptions::new().with_user("other", "pw"));
    for mode in [
        PoolMode::Session,
        PoolMode::Transaction,
        PoolMode::Statement,
    ] {
        let pooler = PgBouncer::before(&server, mode);
        assert_ne!(pooler.port(), server.port());
        let own = ask(&pooler.url(), &["SELECT current_user, 6 * 7"]);
        assert_eq!(own.as_deref(), Ok("test|42\n"));
        let other = pooler.url().replace("test:test", "other:pw");
        assert_eq!(
            ask(&other, &["SELECT current_user"]).as_deref(),
            Ok("other\n")
        );
        let wrong = pooler.url().replace("test:test", "test:wrong");
        assert!(ask(&wrong, &["SELECT 1"]).is_err());
    }
}

#[test]
fn a_mode_is_what_its_name_says() {
    let server = PostgresServer::start(PostgresOptions::new());
    // A setting of the session reaches whoever has the connection of the server next, if anybody.
    let set = ["SET application_name = 'me'; SET statement_timeout = 7777"];
    let show = ["SHOW statement_timeout"];
    let of = |mode| PgBouncer::with_config(&server, mode, &[("default_pool_size", "1")]);
    for (mode, shown) in [
        (PoolMode::Session, "0\n"),
        (PoolMode::Transaction, "7777ms\n"),
    ] {
        let pooler = of(mode);
        assert!(ask(&pooler.url(), &set).is_ok());
        assert_eq!(ask(&pooler.url(), &show).as_deref(), Ok(shown), "{mode:?}");
    }
    let two = ["BEGIN", "SELECT 1"];
    assert!(ask(&of(PoolMode::Transaction).url(), &two).is_ok());
    let refused = ask(&of(PoolMode::Statement).url(), &two).expect_err("no transaction");
    assert!(
        refused.contains("transaction blocks not allowed"),
        "{refused}"
    );
}

#[test]
fn it_starts_again_and_ends() {
    let server = PostgresServer::start(PostgresOptions::new());
    let pooler = PgBouncer::before(&server, PoolMode::Session);
    let (port, pid) = (pooler.port(), pooler.pid());
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    assert!(!status.contains("Uid:\t0\t"), "{status}");
    assert!(ask(&pooler.url(), &["SELECT 1"]).is_ok());
    assert_eq!(server.backends(), 1);
    pooler.kill();
    assert!(ask(&pooler.url(), &["SELECT 1"]).is_err());
    pooler.restart();
    assert_eq!(pooler.port(), port);
    assert_ne!(pooler.pid(), pid);
    assert!(ask(&pooler.url(), &["SELECT 1"]).is_ok());
    assert!(ask(&pooler.admin_url(), &["SHOW POOLS"]).is_ok_and(|pools| pools.contains("test|")));
    let (pid, dir) = (pooler.pid(), pooler.dir().to_owned());
    pooler.stop();
    drop(pooler);
    assert!(!fs::exists(format!("/proc/{pid}")).expect("an answer"));
    assert!(!dir.exists());
}

/// Asks on one connection and returns what is printed, or the errors.
fn ask(url: &str, statements: &[&str]) -> Result<String, String> {
    let statements = statements.iter().flat_map(|text| ["-c", text]);
    let output = Command::new("psql")
        .args(["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1"])
        .args(statements)
        .arg(url)
        .output()
        .expect("psql");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
}
