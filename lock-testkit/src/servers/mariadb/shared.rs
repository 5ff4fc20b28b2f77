use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::MariaDbServer;
use super::client::Client;
use super::launch::SOCKET;
use super::server::url;
use crate::servers::shared::join;

/// A server that the tests of a run have in common, though each runs in a process of its own. Nobody
/// may stop it; it ends within a second after the run.
///
/// A run is that of `cargo nextest`, and else the process.
#[derive(Clone, Debug)]
pub struct SharedMariaDb {
    port: u16,
    dir: PathBuf,
}

impl SharedMariaDb {
    /// Its port of 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Makes an empty database of the user `test` with a name of its own, and returns its URL.
    ///
    /// # Panics
    ///
    /// If the server does not do it.
    #[must_use]
    pub fn database(&self) -> String {
        let client = self.client("test");
        let name = client.make_database().expect("the server does it");
        url("test", &self.address(), &name)
    }

    /// The URL of `root` for the same database.
    #[must_use]
    pub fn admin_url(&self, database: &str) -> String {
        url("root", &self.address(), name(database))
    }

    /// Runs statements in the database of this URL, as [`MariaDbServer::sql`] does.
    ///
    /// # Panics
    ///
    /// As [`MariaDbServer::sql`].
    pub fn sql(&self, database: &str, text: &str) -> Vec<Vec<String>> {
        let rows = self.client(name(database)).run(text);
        rows.expect("the server does it")
    }

    /// How many connections the user `test` has to the database of this URL.
    ///
    /// # Panics
    ///
    /// As [`MariaDbServer::sql`].
    #[must_use]
    pub fn connections(&self, database: &str) -> usize {
        let name = name(database);
        let count = self.client(name).connections(Some(name));
        count.expect("the server does it")
    }

    /// Finds the one of this run, or starts it.
    pub(super) fn join(start: impl Fn() -> MariaDbServer) -> Self {
        let mut places = join(
            "mariadb",
            || vec![start().into_member()],
            |place| UnixStream::connect(place.dir.join(SOCKET)).is_ok(),
        );
        let place = places.pop().expect("BUG: one server is started");
        let (port, dir) = (place.port, place.dir);
        Self { port, dir }
    }

    fn client<'a>(&'a self, database: &'a str) -> Client<'a> {
        Client {
            dir: &self.dir,
            database,
        }
    }
}

/// The name in the URL of a database.
fn name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}
