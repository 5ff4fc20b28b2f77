//! The table of locks, made before anybody takes one.

#![cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]

mod common;

use lock_testkit::servers::{MariaDbServer, PostgresServer, SharedMariaDb, SharedPostgres};
use serde_json::json;

use crate::common::Place;

/// The same URL for a user that may do little.
fn as_app(url: &str) -> String {
    let (_, place) = url.split_once('@').expect("a user");
    let (scheme, _) = url.split_once("://").expect("a scheme");
    format!("{scheme}://{}:app@{place}", app(url))
}

/// A user of this test's alone, in a database of its own.
fn app(url: &str) -> String {
    let database = url.rsplit('/').next().expect("a database");
    format!("app_{database}").replace('-', "_")
}

fn add_app_to_postgres(server: &SharedPostgres, url: &str) {
    let app = app(url);
    server.sql(url, &format!("CREATE ROLE {app} LOGIN PASSWORD 'app'"));
}

fn add_app_to_mariadb(server: &SharedMariaDb, url: &str) {
    let app = app(url);
    let password = "IDENTIFIED BY 'app'";
    server.sql(url, &format!("CREATE USER {app}@'%' {password}"));
    // Without any right to a database, a user does not get into it.
    server.sql(url, &format!("GRANT TRIGGER ON * TO {app}@'%'"));
}

#[test]
fn the_statements_are_printed_without_a_server() {
    let place = Place::new();
    let cases = [
        (
            "postgres://u:s3cret@nowhere/d?schema=s",
            "\"s\".\"polylock_locks\"",
        ),
        (
            "mysql://u:s3cret@nowhere/d?table=mine&namespace=shop",
            "`mine`",
        ),
        ("sqlite:never.db", "\"polylock_locks\""),
    ];
    for (url, table) in cases {
        let output = place.run(&["--backend", url, "schema", "print"]);
        assert!(output.status.success(), "{output:?}");
        let sql = String::from_utf8(output.stdout).unwrap();
        let create = format!("CREATE TABLE IF NOT EXISTS {table} (");
        assert!(sql.contains(&create), "{sql}");
        assert!(!sql.contains("s3cret"), "{sql}");
    }
    assert!(!place.file("never.db").exists());
    let printed = place.json(&["--backend", "sqlite:never.db", "schema", "print"]);
    assert_eq!(printed["table"], json!("polylock_locks"));
    let (code, said) = place.code(&["--backend", "memory:", "schema", "print"]);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("no database"), "{said}");
}

#[test]
fn the_table_is_made_once() {
    let place = Place::new();
    let file = format!("sqlite:{}", place.file("new.db").display());
    let urls = [
        PostgresServer::shared().database(),
        MariaDbServer::shared().database(),
        file,
    ];
    for url in urls {
        for created in [true, false] {
            let said = place.json(&["--backend", &url, "schema", "apply"]);
            assert_eq!(
                said,
                json!({ "table": "polylock_locks", "created": created })
            );
        }
        let output = place.run(&["--backend", &url, "schema", "apply"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said, "table polylock_locks is there\n");
    }
}

#[test]
fn what_is_printed_makes_the_table() {
    let place = Place::new();
    let (postgres, mariadb) = (PostgresServer::shared(), MariaDbServer::shared());
    let (here, there) = (postgres.database(), mariadb.database());
    for url in [&here, &there] {
        let printed = place.json(&["--backend", url, "schema", "print"]);
        let sql = printed["sql"].as_str().unwrap();
        // Twice, since it does nothing the second time.
        for _ in 0..2 {
            match url == &here {
                true => postgres.sql(url, &format!("SET ROLE test; {sql}")),
                false => mariadb.sql(url, sql),
            };
        }
        let said = place.json(&["--backend", url, "schema", "apply"]);
        assert_eq!(said["created"], json!(false));
    }
}

#[test]
fn three_rights_on_the_table_are_enough_in_every_mode() {
    let place = Place::new();
    let (postgres, mariadb) = (PostgresServer::shared(), MariaDbServer::shared());
    let (here, there) = (postgres.database(), mariadb.database());
    add_app_to_postgres(&postgres, &here);
    add_app_to_mariadb(&mariadb, &there);
    for url in [&here, &there] {
        let app_url = as_app(url);
        let (code, said) = place.code(&["--backend", &app_url, "try", "k"]);
        assert_eq!(code, 77, "{said}");
        assert!(said.contains("lockctl schema apply"), "{said}");
        let (code, said) = place.code(&["--backend", url, "schema", "apply"]);
        assert_eq!(code, 0, "{said}");
        let rights = "GRANT SELECT, INSERT, UPDATE ON polylock_locks TO";
        match url == &here {
            true => postgres.sql(&here, &format!("{rights} {}", app(url))),
            false => mariadb.sql(&there, &format!("{rights} {}@'%'", app(url))),
        };
        for mode in ["row", "lease", "advisory"] {
            let url = format!("{app_url}?mode={mode}&create-table=off");
            for _ in 0..2 {
                let line = ["--backend", &url, "run", "k", "--", "true"];
                let (code, said) = place.code(&line);
                assert_eq!(code, 0, "{mode}: {said}");
            }
        }
    }
}

#[test]
fn a_table_that_is_not_to_be_made_is_asked_for() {
    let place = Place::new();
    for url in [
        PostgresServer::shared().database(),
        MariaDbServer::shared().database(),
    ] {
        let url = format!("{url}?create-table=off");
        let (code, said) = place.code(&["--backend", &url, "try", "k"]);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains("lockctl schema apply"), "{said}");
        // Who says apply has said so.
        let (code, said) = place.code(&["--backend", &url, "schema", "apply"]);
        assert_eq!(code, 0, "{said}");
        let (code, said) = place.code(&["--backend", &url, "try", "k"]);
        assert_eq!(code, 0, "{said}");
    }
}
