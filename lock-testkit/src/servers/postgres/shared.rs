use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::PostgresServer;
use super::psql::Psql;
use super::server::url;
use crate::servers::shared::join;

/// A server that the tests of a run have in common, though each runs in a process of its own. Nobody
/// may stop it; it ends within a second after the run.
///
/// A run is that of `cargo nextest`, and else the process.
#[derive(Clone, Debug)]
pub struct SharedPostgres {
    port: u16,
    dir: PathBuf,
}

impl SharedPostgres {
    /// Its port of 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Makes an empty database of the role `test` with a name of its own, and returns its URL:
    /// 0.1 to 0.5 s, and 8 MB that are there until the end of the run.
    ///
    /// # Panics
    ///
    /// If the server does not do it.
    #[must_use]
    pub fn database(&self) -> String {
        let psql = self.psql("test");
        let name = psql.make_database().expect("the server does it");
        url("test", &self.address(), &name)
    }

    /// The URL of the superuser for the same database.
    #[must_use]
    pub fn admin_url(&self, database: &str) -> String {
        url("postgres", &self.address(), name(database))
    }

    /// Runs statements in the database of this URL, as [`PostgresServer::sql`] does.
    ///
    /// # Panics
    ///
    /// As [`PostgresServer::sql`].
    pub fn sql(&self, database: &str, text: &str) -> Vec<Vec<String>> {
        let rows = self.psql(name(database)).run(text);
        rows.expect("the server does it")
    }

    /// How many connections the role `test` has to the database of this URL.
    ///
    /// # Panics
    ///
    /// As [`PostgresServer::sql`].
    #[must_use]
    pub fn backends(&self, database: &str) -> usize {
        let count = "SELECT count(*) FROM pg_stat_activity
            WHERE usename = 'test' AND datname = current_database()";
        let rows = self.sql(database, count);
        rows[0][0].parse().expect("a number")
    }

    /// Finds the one of this run, or starts it.
    pub(super) fn join(start: impl Fn() -> PostgresServer) -> Self {
        let mut places = join(
            "postgres",
            || vec![start().into_member()],
            |place| UnixStream::connect(place.dir.join(format!(".s.PGSQL.{}", place.port))).is_ok(),
        );
        let place = places.pop().expect("BUG: one server is started");
        let (port, dir) = (place.port, place.dir);
        Self { port, dir }
    }

    fn psql<'a>(&'a self, database: &'a str) -> Psql<'a> {
        Psql {
            dir: &self.dir,
            port: self.port,
            database,
        }
    }
}

/// The name in the URL of a database.
fn name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}
