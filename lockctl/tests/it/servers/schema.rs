//! The table of locks, created before the first acquisition.

use lock_testkit::servers::{MariaDbServer, PostgresServer, SharedMariaDb, SharedPostgres};
use serde_json::json;

use crate::fixture::{Place, side_by_side};

/// A database of each server.
pub(super) enum Database {
    MariaDb(SharedMariaDb, String),
    Postgres(SharedPostgres, String),
}

impl Database {
    pub(super) fn of_each_server() -> [Self; 2] {
        let (mariadb, postgres) = (MariaDbServer::shared(), PostgresServer::shared());
        let (here, there) = (mariadb.database(), postgres.database());
        [
            Self::MariaDb(mariadb, here),
            Self::Postgres(postgres, there),
        ]
    }

    pub(super) fn url(&self) -> &str {
        let (Self::MariaDb(_, url) | Self::Postgres(_, url)) = self;
        url
    }

    pub(super) fn sql(&self, statement: &str) {
        match self {
            Self::MariaDb(server, url) => server.sql(url, statement),
            Self::Postgres(server, url) => server.sql(url, statement),
        };
    }

    /// Adds a user that may do little, and returns its name in SQL.
    fn add_user(&self) -> String {
        let name = self.user();
        match self {
            Self::MariaDb(..) => {
                self.sql(&format!("CREATE USER {name}@'%' IDENTIFIED BY 'app'"));
                // Without any right to a database, a user does not get into it.
                self.sql(&format!("GRANT TRIGGER ON * TO {name}@'%'"));
                format!("{name}@'%'")
            }
            Self::Postgres(..) => {
                self.sql(&format!("CREATE ROLE {name} LOGIN PASSWORD 'app'"));
                name
            }
        }
    }

    /// The name of a user that no other test has.
    fn user(&self) -> String {
        let database = self.url().rsplit('/').next().expect("a database");
        format!("app_{database}").replace('-', "_")
    }

    /// The URL for that user.
    fn url_of_user(&self) -> String {
        let (scheme, rest) = self.url().split_once("://").expect("a scheme");
        let (_, host) = rest.split_once('@').expect("a user");
        format!("{scheme}://{}:app@{host}", self.user())
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
    let urls = databases.iter().map(Database::url).chain(["sqlite:new.db"]);
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
        let on = |line: &str| place.json(&format!("--backend {} schema {line}", database.url()));
        let printed = on("print");
        let mut sql = printed["sql"].as_str().expect("the statements").to_owned();
        if matches!(database, Database::Postgres(..)) {
            sql.insert_str(0, "SET ROLE test; ");
        }
        // Twice, since it does nothing the second time.
        database.sql(&sql);
        database.sql(&sql);
        assert_eq!(
            on("apply")["created"],
            false,
            "{} has no table",
            database.url()
        );
    }
}

#[test]
fn rights_on_the_table_and_its_sequence_are_enough_in_every_mode() {
    side_by_side(&Database::of_each_server(), |database| {
        let place = Place::new();
        let (user, url) = (database.add_user(), database.url_of_user());
        let ended = place.expect(77, &["--backend", &url, "try", "k"]);
        ended.says(&["lockctl schema apply"]);
        place.expect(0, &["--backend", database.url(), "schema", "apply"]);
        database.sql(&format!(
            "GRANT SELECT, INSERT, UPDATE ON polylock_locks TO {user}"
        ));
        // The right to raise a counter has another name on each.
        let rights = match database.url().starts_with("postgres") {
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
        let url = format!("{}?create-table=off", database.url());
        let ended = place.expect(78, &["--backend", &url, "try", "k"]);
        ended.says(&["lockctl schema apply"]);
        // Who says apply has said so.
        place.expect(0, &["--backend", &url, "schema", "apply"]);
        place.expect(0, &["--backend", &url, "try", "k"]);
    }
}
