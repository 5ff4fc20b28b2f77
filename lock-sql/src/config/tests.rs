use std::time::Duration;

use polylock_core::{ErrorKind, LockUrl, Result};

use super::*;

fn read(url: &str) -> Result<SqlConfig> {
    SqlConfig::from_url(&LockUrl::parse(url)?)
}

#[test]
fn a_url_says_where_and_as_whom() {
    let config = read("postgres://me:s3%40c@db/shop").unwrap();
    assert_eq!(config.server, ServerKind::Postgres);
    assert_eq!((config.host.as_str(), config.port), ("db", 5432));
    assert_eq!(config.database, "shop");
    let login = config.login.known().unwrap();
    assert_eq!(
        (login.username(), login.password()),
        (Some("me"), Some("s3@c"))
    );
    assert_eq!(config.table_sql(), r#""public"."polylock_locks""#);
    assert!(!format!("{config:?}").contains("s3@c"), "{config:?}");

    for scheme in ["mysql", "mariadb"] {
        let config = read(&format!("{scheme}://me@[::1]:7/shop%20b")).unwrap();
        assert_eq!(config.server, ServerKind::MySql);
        assert_eq!((config.host.as_str(), config.port), ("::1", 7));
        assert_eq!(config.database, "shop b");
        assert_eq!(config.login.known().unwrap().password(), None);
        assert_eq!(config.table_sql(), "`polylock_locks`");
    }
    let config = read("postgresql://me@%2Frun%2Fpg/shop").unwrap();
    assert!(config.is_socket());
}

#[test]
fn reads_every_parameter() {
    let config = read(
        "postgres://u:p@db/d?mode=lease&table=t&schema=s&connections=3&timeout=2s&notify=off\
         &pooler=transaction&retention=1day&create-table=off&strict=on&tls=on\
         &application-name=a%20b&tls-ca-file=/ca&tls-cert-file=/cert&tls-key-file=/key",
    );
    if cfg!(not(feature = "tls")) {
        let error = config.unwrap_err();
        let says = "the feature \"tls\" of polylock (of polylock-sql, if used alone)";
        return assert!(error.message().contains(says), "{error}");
    }
    let config = config.unwrap();
    assert_eq!(config.mode, SqlMode::Lease);
    assert_eq!(config.table_sql(), r#""s"."t""#);
    assert_eq!(config.connections, 3);
    assert_eq!(config.timeout, Duration::from_secs(2));
    assert!(config.is_pooled);
    assert_eq!(config.retention, Duration::from_secs(86_400));
    assert_eq!(config.application_name, "a b");
    assert!(!config.notify && !config.creates_table && config.strict);
    let tls = config.tls.unwrap();
    assert_eq!(tls.ca, Some("/ca".into()));
    assert_eq!(tls.identity, Some(("/cert".into(), "/key".into())));

    let config = read("mysql://u@db/d?mode=advisory&session-timeout=1m").unwrap();
    assert_eq!(config.mode, SqlMode::Advisory);
    assert_eq!(config.session_timeout, Duration::from_secs(60));
    let config = read("mysql://u@db/d").unwrap();
    assert_eq!(config.mode, SqlMode::Row);
    assert!(config.creates_table && !config.strict && config.tls.is_none());
}

#[test]
fn the_methods_do_what_a_url_does() {
    let url = |url: &str| read(url).expect("it is right");
    let row = SqlConfig::mysql("db").with_database("d").with_user("me");
    let row = row.with_session_timeout(Duration::from_secs(60));
    assert_same(
        &row.expect("it is in range"),
        &url("mysql://me@db/d?session-timeout=1m"),
    );
    let lease = SqlConfig::postgres("db").with_port(7).with_database("d");
    let lease = lease.with_login("me", "s3@c").with_mode(SqlMode::Lease);
    let lease = lease.with_table("t").and_then(|it| it.with_schema("s"));
    let lease = lease.and_then(|it| it.with_connections(3));
    let lease = lease.and_then(|it| it.with_timeout(Duration::from_secs(2)));
    let lease = lease.and_then(|it| it.with_application_name("a b"));
    let lease = lease.expect("all are in range").without_notify();
    let lease = lease.behind_transaction_pooler().without_create_table();
    let lease = lease.with_retention(Duration::from_secs(86_400));
    assert_same(
        &lease.with_strict_checks(),
        &url(
            "postgres://me:s3%40c@db:7/d?mode=lease&table=t&schema=s&connections=3&timeout=2s\
             &notify=off&pooler=transaction&retention=1day&create-table=off&strict=on\
             &application-name=a%20b",
        ),
    );
    if cfg!(feature = "tls") {
        let tls = SqlConfig::postgres("db").with_database("d").with_user("me");
        assert_same(&tls.clone().with_tls(), &url("postgres://me@db/d?tls=on"));
        let files = tls.with_tls_ca("/ca").with_tls_identity("/cert", "/key");
        let says = "tls=on&tls-ca-file=/ca&tls-cert-file=/cert&tls-key-file=/key";
        assert_same(&files, &url(&format!("postgres://me@db/d?{says}")));
    }
}

fn assert_same(by_methods: &SqlConfig, by_url: &SqlConfig) {
    assert_eq!(format!("{by_methods:?}"), format!("{by_url:?}"));
    // Passwords are not printed.
    assert_eq!(by_methods.login.known(), by_url.login.known());
}

#[test]
fn names_the_mistake() {
    for (url, says) in [
        ("postgres:", "postgres://HOST"),
        ("postgres://u@a,b/d", "one host"),
        ("postgres://db/d", "there is no user"),
        ("postgres://u@db", "there is no database"),
        ("mysql://u@db/", "mysql://USER:PASSWORD@HOST/DATABASE"),
        ("postgres://:p@db/d", "without a user"),
        ("postgres://u@db/d?mode=rows", "did you mean \"row\""),
        ("postgres://u@db/d?table=a-b", "table name"),
        ("postgres://u@db/d?schema=a-b", "schema name"),
        ("mysql://u@db/d?schema=s", "MySQL takes no schema"),
        (
            "mysql://u@db/d?application-name=s",
            "takes no application-name",
        ),
        ("mysql://u@db/d?mode=lease&notify=on", "no notifications"),
        (
            "postgres://u@db/d?notify=off",
            "mode=lease, and this URL has mode=row",
        ),
        (
            "postgres://u@db/d?mode=lease&expiry=observer",
            "unknown parameter \"expiry\"",
        ),
        (
            "postgres://u@db/d?mode=lease&session-timeout=5s",
            "goes with mode=row",
        ),
        (
            "postgres://u@db/d?mode=advisory&pooler=transaction",
            "a transaction pooler",
        ),
        ("postgres://u@db/d?connections=1", "from 2 to 1000"),
        ("postgres://u@db/d?session-timeout=1s", "2s"),
        ("postgres://u@db/d?timeout=10ms", "100ms"),
        ("postgres://u@db/d?timeout=5", "unit"),
        ("postgres://u@db/d?tls-ca-file=/ca", "tls=on"),
        (
            "postgres://u@db/d?tls=on&tls-key-file=/k",
            "belong together",
        ),
        ("postgres://u@%2Frun/d?tls=on", "no TLS"),
        (
            "postgres://u@db/d?sslmode=require",
            "unknown parameter \"sslmode\": write tls=on, which is verify-full (tls-ca-file=PATH",
        ),
        (
            "postgres://u@db/d?ssl-mode=disable",
            "or tls=off, which is disable;",
        ),
        (
            "mysql://u@db/d?ssl-mode=REQUIRED",
            "unknown parameter \"ssl-mode\": write tls=on, which is VERIFY_IDENTITY",
        ),
        ("postgres://u@db/d?tiemout=1s", "did you mean \"timeout\""),
    ] {
        let error = read(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}: {error}");
        assert!(error.message().contains(says), "{url}: {error}");
    }
}
