//! Requirements for a server, and the errors if it does not meet them.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::join_all;
use lock_testkit::locks::assert_error;
use lock_testkit::servers::{
    MariaDbOptions, MariaDbServer, PgBouncer, PoolMode, PostgresOptions, PostgresServer,
};
use polylock_core::prelude::*;
use polylock_core::{
    AcquireRequest, Capabilities, Error, ErrorKind, LockKey, LockUrl, Mode, Waiting,
};
use polylock_sql::{Applied, Schema, SqlLock};

pub(crate) const MODES: [&str; 3] = ["row", "lease", "advisory"];

pub(crate) async fn refusal(url: &str) -> Error {
    SqlLock::open(url).await.expect_err("it is refused")
}

/// Asserts that a server is refused with an error that says so.
pub(crate) async fn assert_refused(url: &str, kind: ErrorKind, says: &str) {
    assert_says(&refusal(url).await, kind, says);
}

#[track_caller]
pub(crate) fn assert_says(error: &Error, kind: ErrorKind, says: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.message().contains(says), "{says}: {error:?}");
}

pub(crate) async fn take(url: &str) -> Capabilities {
    let locks = SqlLock::open(url).await.expect("a server fit for locks");
    let guard = locks.lock("k").await.expect("free");
    guard.release().await.expect("released");
    locks.capabilities()
}

pub(crate) fn schema(url: &str) -> Schema {
    Schema::of(&LockUrl::parse(url).expect("a URL")).expect("of a database")
}

#[tokio::test]
async fn a_transaction_pooler_is_found_and_keeps_no_advisory_locks() {
    let server = PostgresServer::start(PostgresOptions::new());
    for settings in [
        &[][..],
        // The first connection has to wait for the second one.
        &[("default_pool_size", "1")],
        &[("server_round_robin", "1")],
    ] {
        let pooler = PgBouncer::with_config(&server, PoolMode::Transaction, settings);
        let advisory = format!("{}?mode=advisory", pooler.url());
        assert_refused(&advisory, ErrorKind::InvalidConfig, "transaction pooler").await;
        let found = take(&format!("{}?mode=lease", pooler.url())).await;
        assert_eq!(found.waiting, Waiting::Poll, "{settings:?}");
    }
    let found = take(&format!("{}?mode=lease", server.url())).await;
    assert_eq!(found.waiting, Waiting::Push);
}

#[tokio::test]
async fn a_pooler_before_mariadb_can_be_named() {
    let mariadb = MariaDbServer::shared().database();
    for mode in ["row", "lease"] {
        take(&format!("{mariadb}?mode={mode}&pooler=transaction")).await;
    }
}

#[tokio::test]
async fn user_and_address_have_to_be_right() {
    let postgres = PostgresServer::shared().database();
    let mariadb = MariaDbServer::shared().database();
    for url in [&postgres, &mariadb] {
        let (place, _) = url.rsplit_once('/').expect("a database");
        for (url, kind) in [
            (url.replace("test:test@", "test:wr0ng@"), ErrorKind::Denied),
            (
                url.replace("test:test@", "nobody:wr0ng@"),
                ErrorKind::Denied,
            ),
            (replaced_port(url), ErrorKind::Unavailable),
        ] {
            let error = refusal(&url).await;
            assert_eq!(error.kind(), kind, "{error}");
            let said = format!("{error:?}");
            assert!(!said.contains("wr0ng"), "{said}");
            if kind == ErrorKind::Unavailable {
                assert_eq!(error.message(), "cannot connect to 127.0.0.1:1");
            }
        }
        let error = refusal(&format!("{place}/no_such_database")).await;
        let kinds = [ErrorKind::Denied, ErrorKind::InvalidConfig];
        assert!(kinds.contains(&error.kind()), "{error}");
        let says = "the database \"no_such_database\" does not exist";
        assert!(error.message().starts_with(says), "{error}");
    }
}

/// MySQL tells a user without rights neither that a database exists nor that it does not.
#[tokio::test]
async fn a_database_that_is_not_granted_is_no_matter_of_tls() {
    let server = MariaDbServer::shared();
    let url = server.database();
    let (place, database) = url.rsplit_once('/').expect("a database");
    let user = format!("none_{database}");
    server.sql(
        &url,
        &format!("CREATE USER {user}@'%' IDENTIFIED BY 'test'"),
    );
    let place = place.replace("test:test@", &format!("{user}:test@"));
    for database in [database, "no_such_database"] {
        let error = refusal(&format!("{place}/{database}")).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let says =
            format!("the database {database:?} does not exist, or is not granted to this user");
        assert_eq!(error.message(), says);
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    let postgres = PostgresServer::shared();
    let mariadb = MariaDbServer::shared();
    for (server, create, host, grant) in [
        (
            &postgres,
            "LOGIN PASSWORD 'test'",
            "",
            "SELECT, UPDATE ON SEQUENCE \"public\".\"polylock_locks_token\"",
        ),
        (
            &mariadb,
            "IDENTIFIED BY 'test'",
            "@'%'",
            "SELECT, INSERT ON `polylock_locks_token`",
        ),
    ] {
        let url = server.database();
        schema(&url).apply().await.expect("made");
        let (_, database) = url.rsplit_once('/').expect("a database");
        let user = format!("few_{database}");
        let rights = format!(
            "CREATE USER {user}{host} {create};
             GRANT SELECT, INSERT, UPDATE ON polylock_locks TO {user}{host}"
        );
        server.sql(&url, &rights);
        let url = url.replace("test:test@", &format!("{user}:test@"));
        for mode in ["row", "advisory"] {
            let locks = SqlLock::open(&format!("{url}?mode={mode}")).await;
            let error = locks.expect("it may read").lock("k").await;
            let error = error.expect_err("it may draw no tokens");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let says = format!("this user lacks a right that locks need: GRANT {grant}");
            assert_eq!(error.message(), says, "{mode}");
        }
    }
}

#[tokio::test]
async fn a_mode_without_a_kind_of_locks_is_named() {
    let permit = Mode::Permit {
        limit: NonZeroU32::MIN,
    };
    for (url, mode, lacks, text) in [
        (
            PostgresServer::shared().database(),
            "row",
            permit,
            "permits",
        ),
        (
            MariaDbServer::shared().database(),
            "advisory",
            Mode::Shared,
            "shared locks",
        ),
    ] {
        let opened = SqlLock::open(&format!("{url}?mode={mode}")).await;
        let locks = opened.expect("a server fit for locks");
        let request = AcquireRequest::new(LockKey::new("k").expect("a key")).with_mode(lacks);
        let error = assert_error(&locks, &request, ErrorKind::Unsupported).await;
        let says = format!(
            "{}: {text} are not supported by this backend in mode={mode}: mode=lease has them \
             (key \"k\")",
            locks.capabilities().backend
        );
        assert_eq!(error.to_string(), says);
    }
}

/// A port without a listener.
fn replaced_port(url: &str) -> String {
    let (before, rest) = url.rsplit_once(':').expect("a port");
    let (_, database) = rest.split_once('/').expect("a database");
    format!("{before}:1/{database}")
}

#[tokio::test]
async fn many_may_make_the_table_at_once() {
    for url in [
        PostgresServer::shared().database(),
        MariaDbServer::shared().database(),
    ] {
        let made = (0..8).map(async |_| schema(&url).apply().await);
        for made in join_all(made).await {
            made.expect("it is there");
        }
        let again = schema(&url).apply().await.expect("it is there");
        assert_eq!(again, Applied::Found);
    }
}

/// A dump of the table alone has no sequence, which locks of sessions need.
#[tokio::test]
async fn a_missing_sequence_is_made_again() {
    for server in [PostgresServer::shared(), MariaDbServer::shared()] {
        let url = server.database();
        schema(&url).apply().await.expect("it is made");
        let sequence = match MariaDbServer::is_mysql() && url.starts_with("mysql") {
            true => "TABLE",
            false => "SEQUENCE",
        };
        server.sql(&url, &format!("DROP {sequence} polylock_locks_token"));
        let applied = schema(&url).apply().await.expect("it is made again");
        assert_eq!(applied, Applied::Created);
        take(&format!("{url}?mode=row")).await;
        let again = schema(&url).apply().await.expect("it is there");
        assert_eq!(again, Applied::Found);
    }
}

/// A table of layout 1 has one row for each key, and a list of its slots.
#[tokio::test]
async fn a_table_of_another_layout_is_refused_with_a_way_out_and_left_alone() {
    for server in [PostgresServer::shared(), MariaDbServer::shared()] {
        let url = server.database();
        let sql = |text: &str| server.sql(&url, text);
        let (role, bytes, name) = match url.starts_with("postgres") {
            true => ("SET ROLE test; ", "bytea", "\"public\".\"polylock_locks\""),
            false => ("", "VARBINARY(513)", "`polylock_locks`"),
        };
        let drop = format!("DROP TABLE {name}, then `lockctl schema apply`");
        sql(&format!(
            "{role}CREATE TABLE polylock_locks (kind SMALLINT NOT NULL, lock_key {bytes} NOT NULL,
                 token BIGINT NOT NULL DEFAULT 0, shared TEXT, PRIMARY KEY (kind, lock_key))"
        ));
        sql("INSERT INTO polylock_locks (kind, lock_key) VALUES (0, '')");
        let fixes = [(1, drop.as_str()), (7, "update this one")];
        for (layout, fix) in fixes {
            sql(&format!("UPDATE polylock_locks SET token = {layout}"));
            let applied = schema(&url).apply().await;
            let mut errors = vec![applied.expect_err("another layout")];
            for mode in MODES {
                errors.push(refusal(&format!("{url}?mode={mode}")).await);
            }
            for error in errors {
                let says = format!("has layout {layout}, and this version knows layout 3");
                assert_says(&error, ErrorKind::Protocol, &says);
                assert!(error.message().contains(fix), "{error}");
            }
        }
        // One that does not say what it is becomes none of this version.
        sql("DELETE FROM polylock_locks");
        let error = refusal(&url).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert_eq!(sql("SELECT COUNT(*) FROM polylock_locks"), [["0"]]);
        sql(&format!("DROP TABLE {name}"));
        schema(&url).apply().await.expect("it is made anew");
        take(&url).await;
    }
}

#[tokio::test]
async fn a_table_of_another_application_is_left_alone() {
    for server in [PostgresServer::shared(), MariaDbServer::shared()] {
        let url = server.database();
        let role = match url.starts_with("postgres") {
            true => "SET ROLE test; ",
            false => "",
        };
        let create = "CREATE TABLE polylock_locks (a int); INSERT INTO polylock_locks VALUES (7)";
        server.sql(&url, &format!("{role}{create}"));
        let says = "has the columns a, is no table of locks";
        assert_refused(&url, ErrorKind::Foreign, says).await;
        assert_eq!(server.sql(&url, "SELECT * FROM polylock_locks"), [["7"]]);
    }
}

#[tokio::test]
async fn a_table_without_its_description_gets_one() {
    let server = MariaDbServer::shared();
    let url = server.database();
    schema(&url).apply().await.expect("made");
    server.sql(&url, "DELETE FROM polylock_locks");
    take(&format!("{url}?create-table=off")).await;
    let kinds = "SELECT COUNT(*) FROM polylock_locks WHERE kind = 0 AND token = 3";
    assert_eq!(server.sql(&url, kinds), [["1"]]);
}

#[tokio::test]
async fn a_server_that_is_silent_is_unavailable_in_time() {
    let server = MariaDbServer::start(MariaDbOptions::new());
    server.stop();
    let url = format!("{}?timeout=500ms", server.url());
    let opened = tokio::time::timeout(Duration::from_secs(3), refusal(&url)).await;
    server.resume();
    let error = opened.expect("in time");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let says = format!("127.0.0.1:{} did not answer within 500ms", server.port());
    assert_eq!(error.message(), says);
}
