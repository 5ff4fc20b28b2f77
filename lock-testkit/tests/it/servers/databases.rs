//! PostgreSQL, MariaDB and PgBouncer: their users, options and modes.

use std::process::Command;
use std::thread;

use lock_testkit::servers::{
    DatabaseServer, MariaDbOptions, MariaDbServer, PgBouncer, PoolMode, PostgresOptions,
    PostgresServer, ServerCertificate, TlsFiles,
};

use crate::support::{eventually, psql};

#[test]
fn postgres_has_a_superuser_and_the_role_test() {
    let server = PostgresServer::start(PostgresOptions::new());
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
}

#[test]
fn connections_are_counted() {
    let postgres = PostgresServer::start(PostgresOptions::new());
    let mariadb = MariaDbServer::start(MariaDbOptions::new());
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'test'";
    let servers: [(&DatabaseServer, &str, &str); 2] = [
        (&postgres, "SELECT pg_sleep(60)", end),
        (&mariadb, "SELECT sleep(60)", "KILL USER test"),
    ];
    for (server, sleep, end) in servers {
        let rows = server.sql_as("test", "test", "CREATE TABLE t (a int); SELECT 7");
        assert_eq!(rows, [["7"]]);
        assert_eq!(server.connections(), 0);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| server.try_sql_as("test", "test", sleep));
            eventually(|| server.connections() == 1);
            server.sql(end);
            assert!(sleeper.join().expect("no panic").is_err());
        });
    }
}

#[test]
fn options_of_postgres_take_effect() {
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
fn tls_is_all_that_postgres_takes_by_tcp() {
    let files = TlsFiles::new(ServerCertificate::Valid);
    let server = PostgresServer::start(PostgresOptions::new().with_tls(&files));
    assert_eq!(server.sql("SHOW ssl"), [["on"]]);
    let ca = files.ca();
    let verified = format!("?sslmode=verify-full&sslrootcert={}", ca.display());
    assert!(psql(&(server.url() + &verified), &["SELECT 1"]).is_ok());
    let plain = server.url() + "?sslmode=disable";
    assert!(psql(&plain, &["SELECT 1"]).is_err());
}

#[test]
fn mariadb_has_root_and_the_user_test() {
    let server = MariaDbServer::start(MariaDbOptions::new());
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
}

#[test]
fn options_of_mariadb_take_effect() {
    let options = MariaDbOptions::new()
        .with_config("wait_timeout", "77")
        .with_durability(true);
    let server = MariaDbServer::start(options);
    let variables = "SELECT @@global.wait_timeout, @@innodb_flush_log_at_trx_commit,
        @@collation_server";
    assert_eq!(server.sql(variables), [["77", "1", "utf8mb4_general_ci"]]);
}

#[test]
fn tls_is_all_that_mariadb_takes_by_tcp() {
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
fn mariadb_makes_databases_of_the_user_test() {
    let server = MariaDbServer::start(MariaDbOptions::new());
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
fn each_mode_of_pgbouncer_passes_a_statement() {
    let server = PostgresServer::start(PostgresOptions::new().with_user("other", "pw"));
    for mode in [
        PoolMode::Session,
        PoolMode::Transaction,
        PoolMode::Statement,
    ] {
        let pooler = PgBouncer::before(&server, mode);
        assert_ne!(pooler.port(), server.port());
        let own = psql(&pooler.url(), &["SELECT current_user, 6 * 7"]);
        assert_eq!(own.as_deref(), Ok("test|42\n"));
        let other = pooler.url().replace("test:test", "other:pw");
        assert_eq!(
            psql(&other, &["SELECT current_user"]).as_deref(),
            Ok("other\n")
        );
        let wrong = pooler.url().replace("test:test", "test:wrong");
        assert!(psql(&wrong, &["SELECT 1"]).is_err());
    }
}

#[test]
fn a_mode_of_pgbouncer_is_what_its_name_says() {
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
        assert!(psql(&pooler.url(), &set).is_ok());
        assert_eq!(psql(&pooler.url(), &show).as_deref(), Ok(shown), "{mode:?}");
    }
    let two = ["BEGIN", "SELECT 1"];
    assert!(psql(&of(PoolMode::Transaction).url(), &two).is_ok());
    let refused = psql(&of(PoolMode::Statement).url(), &two).expect_err("no transaction");
    assert!(
        refused.contains("transaction blocks not allowed"),
        "{refused}"
    );
}

#[test]
fn pgbouncer_tells_its_pools() {
    let server = PostgresServer::start(PostgresOptions::new());
    let pooler = PgBouncer::before(&server, PoolMode::Session);
    assert!(psql(&pooler.url(), &["SELECT 1"]).is_ok());
    assert_eq!(server.backends(), 1);
    let pools = psql(&pooler.admin_url(), &["SHOW POOLS"]);
    assert!(pools.is_ok_and(|pools| pools.contains("test|")));
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
