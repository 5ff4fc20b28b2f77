//! The table of locks, created before the first acquisition.

use lock_testkit::servers::{MariaDbServer, PostgresServer, SharedDatabase};
use serde_json::json;

use crate::fixture::{Place, side_by_side};

/// A database of a server.
pub(super) struct Database {
    server: SharedDatabase,
    pub(super) url: String,
}

impl Database {
    pub(super) fn of_each_server() -> [Self; 2] {
        [MariaDbServer::shared(), PostgresServer::shared()].map(|server| Self {
            url: server.database(),
            server,
        })
    }

    pub(super) fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }

    pub(super) fn sql(&self, statement: &str) {
        self.server.sql(&self.url, statement);
    }

    /// Adds a user that no other test has and that may do little. Returns its name in SQL, and its URL.
    fn add_user(&self) -> (String, String) {
        let (before, database) = self.url.rsplit_once('/').expect("a database");
        let (scheme, login) = before.split_once("://").expect("a scheme");
        let (_, host) = login.split_once('@').expect("a user");
        let name = format!("app_{database}").replace('-', "_");
        let url = format!("{scheme}://{name}:app@{host}/{database}");
        if self.is_postgres() {
            self.sql(&format!("CREATE ROLE {name} LOGIN PASSWORD 'app'"));
            return (name, url);
        }
        let name = format!("{name}@'%'");
        self.sql(&format!("CREATE USER {name} IDENTIFIED BY 'app'"));
        // Without any right to a database, a user does not get into it.
        self.sql(&format!("GRANT TRIGGER ON * TO {name}"));
        (name, url)
    }
}

#[test]
fn the_statements_are_printed_without_a_server() {
    let place = Place::new();
    for (url, table) in [
        (
            "postgres://u:s3cret@nowhere/d?schema=s",
            "\"s\".\"polylock_locks\"",
        ),
        (
            "mysql://u:s3cret@nowhere/d?table=mine&namespace=shop",
            "`mine`",
        ),
        ("sqlite:never.db", "\"polylock_locks\""),
    ] {
        let ended = place.expect(0, &["--backend", url, "schema", "print"]);
        let create = format!("CREATE TABLE IF NOT EXISTS {table} (");
        ended.prints(&[&create]).says_nothing_of(&["s3cret"]);
    }
    let printed = place.json("--backend sqlite:never.db schema print");
    assert_eq!(printed["table"], "polylock_locks", "{printed}");
    assert!(!place.file("never.db").exists(), "the database is made");
    place
        .expect(78, "--backend memory: schema print")
        .says(&["no database"]);
}

#[test]
fn the_table_is_made_once() {
    let place = Place::new();
    let databases = Database::of_each_server();
    let urls = databases.iter().map(|database| &*database.url);
    let urls = urls.chain(["sqlite:new.db"]);
    for url in urls {
        let line = ["--backend", url, "schema", "apply"];
        for created in [true, false] {
            let expected = json!({ "table": "polylock_locks", "created": created });
            assert_eq!(place.json(&line), expected, "{url}");
        }
        place
            .expect(0, &line)
            .prints_only("table polylock_locks is there\n");
    }
}

#[test]
fn what_is_printed_makes_the_table() {
    let place = Place::new();
    for database in Database::of_each_server() {
        let on = |line: &str| place.json(&format!("--backend {} schema {line}", database.url));
        let printed = on("print");
        let mut sql = printed["sql"].as_str().expect("the statements").to_owned();
        if database.is_postgres() {
            sql.insert_str(0, "SET ROLE test; ");
        }
        // Twice, since it does nothing the second time.
        database.sql(&sql);
        database.sql(&sql);
        let applied = on("apply");
        assert_eq!(applied["created"], false, "{} has no table", database.url);
    }
}

#[test]
fn rights_on_the_table_and_its_sequence_are_enough_in_every_mode() {
    side_by_side(&Database::of_each_server(), |database| {
        let place = Place::new();
        let (user, url) = database.add_user();
        let ended = place.expect(77, &["--backend", &url, "try", "k"]);
        ended.says(&["lockctl schema apply"]);
        place.expect(0, &["--backend", &database.url, "schema", "apply"]);
        database.sql(&format!(
            "GRANT SELECT, INSERT, UPDATE ON polylock_locks TO {user}"
        ));
        // The right to raise a counter has another name on each.
        let rights = match database.is_postgres() {
            true => "SELECT, UPDATE",
            false => "SELECT, INSERT",
        };
        database.sql(&format!("GRANT {rights} ON polylock_locks_token TO {user}"));
        for mode in ["row", "lease", "advisory"] {
            let url = format!("{url}?mode={mode}&create-table=off");
            for _ in 0..2 {
                place.expect(0, &["--backend", &url, "run", "k", "--", "true"]);
            }
        }
    });
}

#[test]
fn a_table_that_is_not_to_be_made_is_asked_for() {
    let place = Place::new();
    for database in Database::of_each_server() {
        let url = format!("{}?create-table=off", database.url);
        let ended = place.expect(78, &["--backend", &url, "try", "k"]);
        ended.says(&["lockctl schema apply"]);
        // Who says apply has said so.
        place.expect(0, &["--backend", &url, "schema", "apply"]);
        place.expect(0, &["--backend", &url, "try", "k"]);
    }
}
