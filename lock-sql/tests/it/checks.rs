//! What a server must be like, and what is said of one that is not.

use std::time::Duration;

use lock_testkit::servers::{
    MariaDbOptions, MariaDbServer, PgBouncer, PoolMode, PostgresOptions, PostgresServer,
    PostgresStandby,
};
use polylock_core::prelude::*;
use polylock_core::{Capabilities, Error, ErrorKind, LockUrl, Waiting};
use polylock_sql::{Applied, Schema, SqlLock};

const MODES: [&str; 3] = ["row", "lease", "advisory"];

async fn refusal(url: &str) -> Error {
    SqlLock::open(url).await.expect_err("it is refused")
}

pub(crate) async fn take(url: &str) -> Capabilities {
    let locks = SqlLock::open(url).await.expect("a server fit for locks");
    let guard = locks.lock("k").await.expect("free");
    guard.release().await.expect("released");
    locks.capabilities()
}

fn schema(url: &str) -> Schema {
    Schema::of(&LockUrl::parse(url).expect("a URL")).expect("of a database")
}

/// Says what a strict configuration has against a server.
async fn strictly(url: &str) -> String {
    let error = refusal(&format!("{url}?strict=on")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    error.message().to_owned()
}

#[tokio::test]
async fn a_strict_configuration_takes_a_server_that_keeps_what_it_commits() {
    let postgres = PostgresServer::start(PostgresOptions::new().with_durability(true));
    let mariadb = MariaDbServer::start(MariaDbOptions::new().with_durability(true));
    for url in [postgres.url(), mariadb.url()] {
        for mode in MODES {
            take(&format!("{url}?mode={mode}&strict=on")).await;
        }
    }
}

#[tokio::test]
async fn a_strict_configuration_refuses_a_server_that_forgets() {
    let options = PostgresOptions::new().with_config("synchronous_commit", "off");
    let postgres = PostgresServer::start(options);
    let said = strictly(&postgres.url()).await;
    for says in ["synchronous_commit is off", "fsync is off"] {
        assert!(said.contains(says), "{said}");
    }
    let mariadb = MariaDbServer::shared().database();
    let said = strictly(&mariadb).await;
    assert!(
        said.contains("innodb_flush_log_at_trx_commit is 2"),
        "{said}"
    );
    for url in [postgres.url(), mariadb] {
        take(&url).await;
    }
}

#[tokio::test]
async fn a_standby_takes_no_locks_and_its_primary_is_warned_of_it() {
    let primary = PostgresServer::start(PostgresOptions::new().with_durability(true));
    let standby = PostgresStandby::of(&primary);
    for mode in MODES {
        let error = refusal(&format!("{}?mode={mode}", standby.url())).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.message().contains("is a standby"), "{error}");
    }
    let said = strictly(&primary.url()).await;
    assert!(said.contains("does not wait for them"), "{said}");
    // What is promoted waits for those who may hold a lock of the former server.
    let shortly = |url: String| format!("{url}?session-timeout=2s");
    take(&shortly(primary.url())).await;
    standby.promote();
    take(&shortly(standby.url())).await;
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_refused() {
    let server = PostgresServer::shared();
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name");
    server.sql(
        &url,
        &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"),
    );
    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(error.message().contains("read-only"), "{error}");

    let server = MariaDbServer::start(MariaDbOptions::new().with_config("read_only", "ON"));
    let error = refusal(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("read_only is on"), "{error}");
    // Root may write; whether it should is for a person to say.
    take(&server.admin_url()).await;
    let said = strictly(&server.admin_url()).await;
    assert!(said.contains("may write all the same"), "{said}");
}

#[tokio::test]
async fn locks_work_with_short_time_limits_of_statements() {
    let server = PostgresServer::shared();
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name");
    for setting in ["statement_timeout = '1s'", "lock_timeout = '2s'"] {
        server.sql(&url, &format!("ALTER DATABASE {name} SET {setting}"));
    }
    for mode in MODES {
        take(&format!("{url}?mode={mode}")).await;
    }
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
        let error = refusal(&format!("{}?mode=advisory", pooler.url())).await;
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.message().contains("transaction pooler"), "{error}");
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
async fn who_and_where_have_to_be_right() {
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
        }
        let error = refusal(&format!("{place}/no_such_database")).await;
        let kinds = [ErrorKind::Denied, ErrorKind::InvalidConfig];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}

/// A port where nobody listens.
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
        let made = (0..8).map(|_| {
            let schema = schema(&url);
            tokio::spawn(async move { schema.apply().await })
        });
        for made in made.collect::<Vec<_>>() {
            made.await.expect("no panic").expect("it is there");
        }
        let again = schema(&url).apply().await.expect("it is there");
        assert_eq!(again, Applied::Found);
    }
}

#[tokio::test]
async fn a_table_of_another_layout_is_left_alone() {
    let (postgres, mariadb) = (PostgresServer::shared(), MariaDbServer::shared());
    let (here, there) = (postgres.database(), mariadb.database());
    for url in [&here, &there] {
        schema(url).apply().await.expect("made");
        let update = "UPDATE polylock_locks SET token = 7 WHERE kind = 0";
        match url == &here {
            true => postgres.sql(url, update),
            false => mariadb.sql(url, update),
        };
        for error in [
            refusal(url).await,
            schema(url).apply().await.expect_err("another layout"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            assert!(error.message().contains("layout 7"), "{error}");
        }
    }
}

/// A table that has one row for each key, and a list of its slots.
#[tokio::test]
async fn a_table_of_layout_1_is_refused_with_its_number() {
    let (postgres, mariadb) = (PostgresServer::shared(), MariaDbServer::shared());
    let (here, there) = (postgres.database(), mariadb.database());
    for url in [&here, &there] {
        let sql = |text: String| match url == &here {
            true => postgres.sql(url, &text),
            false => mariadb.sql(url, &text),
        };
        let (role, bytes) = match url == &here {
            true => ("SET ROLE test; ", "bytea"),
            false => ("", "VARBINARY(513)"),
        };
        sql(format!(
            "{role}CREATE TABLE polylock_locks (kind SMALLINT NOT NULL, lock_key {bytes} NOT NULL,
                 token BIGINT NOT NULL DEFAULT 0, shared TEXT, PRIMARY KEY (kind, lock_key))"
        ));
        sql("INSERT INTO polylock_locks (kind, lock_key, token) VALUES (0, '', 1)".to_owned());
        for mode in ["lease", "row", "advisory"] {
            let error = refusal(&format!("{url}?mode={mode}")).await;
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            let says = "has layout 1, and this version knows layout 2";
            assert!(error.message().contains(says), "{error}");
        }
        // One that does not say what it is becomes none of this version.
        sql("DELETE FROM polylock_locks".to_owned());
        let error = refusal(url).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        let rows = sql("SELECT COUNT(*) FROM polylock_locks".to_owned());
        assert_eq!(rows, [["0"]]);
    }
}

#[tokio::test]
async fn a_table_of_somebody_else_is_left_alone() {
    let (postgres, mariadb) = (PostgresServer::shared(), MariaDbServer::shared());
    let (here, there) = (postgres.database(), mariadb.database());
    postgres.sql(&here, "SET ROLE test; CREATE TABLE polylock_locks (a int)");
    mariadb.sql(&there, "CREATE TABLE polylock_locks (a int)");
    for url in [&here, &there] {
        let error = refusal(url).await;
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
        assert!(
            error
                .message()
                .contains("has the columns a, is no table of locks"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_table_without_its_description_gets_one() {
    let server = MariaDbServer::shared();
    let url = server.database();
    schema(&url).apply().await.expect("made");
    server.sql(&url, "DELETE FROM polylock_locks");
    take(&format!("{url}?create-table=off")).await;
    let kinds = "SELECT COUNT(*) FROM polylock_locks WHERE kind = 0 AND token = 2";
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
}
