use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use lock_testkit::proxy::Proxy;
use lock_testkit::servers::{
    MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, unique,
};
use polylock_sql::SqlLock;

use super::Database;

/// The time-out of the sessions of the tests, the shortest that there is.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    MariaDb,
    Postgres,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    Advisory,
    Lease,
    Row,
}

/// A table of its own in a database, and how clients use it.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) server: Database,
    pub(crate) mode: Mode,
    pub(crate) database: String,
    pub(crate) table: String,
    connections: usize,
    session_timeout: Duration,
    /// Parameters for the URL beside the usual ones.
    more: String,
}

/// Makes the constructors of the sites at the shared servers.
macro_rules! sites {
    ($($name:ident: $kind:ident, $mode:ident;)*) => {
        impl Site {
            $(pub(crate) fn $name() -> Self {
                Self::shared(Kind::$kind, Mode::$mode)
            })*
        }
    };
}

sites! {
    mariadb_advisory: MariaDb, Advisory;
    mariadb_lease: MariaDb, Lease;
    mariadb_row: MariaDb, Row;
    postgres_advisory: Postgres, Advisory;
    postgres_lease: Postgres, Lease;
    postgres_row: Postgres, Row;
}

impl Site {
    /// At the server of this kind that the whole test run shares.
    pub(crate) fn shared(kind: Kind, mode: Mode) -> Self {
        let server = match kind {
            Kind::MariaDb => MariaDbServer::shared(),
            Kind::Postgres => PostgresServer::shared(),
        };
        Self::new(Database::Shared(kind, server), mode)
    }

    /// In the same mode at a server of this test.
    pub(crate) fn alone(&self) -> Self {
        self.start(false)
    }

    /// In the same mode at a server of this test that keeps what it commits.
    pub(crate) fn durable(&self) -> Self {
        self.start(true)
    }

    fn start(&self, is_durable: bool) -> Self {
        match self.kind() {
            Kind::MariaDb => {
                let options = MariaDbOptions::new().with_durability(is_durable);
                Self::mariadb(&Arc::new(MariaDbServer::start(options)), self.mode)
            }
            Kind::Postgres => {
                let options = PostgresOptions::new().with_durability(is_durable);
                Self::postgres(&Arc::new(PostgresServer::start(options)), self.mode)
            }
        }
    }

    pub(crate) fn postgres(server: &Arc<PostgresServer>, mode: Mode) -> Self {
        Self::new(Database::Postgres(Arc::clone(server)), mode)
    }

    pub(crate) fn mariadb(server: &Arc<MariaDbServer>, mode: Mode) -> Self {
        Self::new(Database::MariaDb(Arc::clone(server)), mode)
    }

    fn new(server: Database, mode: Mode) -> Self {
        Self {
            mode,
            database: server.make(),
            table: unique("t"),
            server,
            connections: match mode {
                Mode::Advisory => 20,
                Mode::Lease => 4,
                // Each lock has one.
                Mode::Row => 150,
            },
            session_timeout: SESSION,
            more: String::new(),
        }
    }

    pub(crate) fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    pub(crate) fn with_connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// Adds parameters to the URL.
    pub(crate) fn with(mut self, more: &str) -> Self {
        self.more.push('&');
        self.more.push_str(more);
        self
    }

    pub(crate) fn kind(&self) -> Kind {
        self.server.kind()
    }

    /// Whether a lock ends with a connection, and not with its lease.
    pub(crate) fn is_session(&self) -> bool {
        matches!(self.mode, Mode::Advisory | Mode::Row)
    }

    pub(crate) fn url(&self) -> String {
        self.url_at(self.server.port())
    }

    /// The same at another port, such as that of a proxy.
    pub(crate) fn url_at(&self, port: u16) -> String {
        let (scheme, name) = match self.kind() {
            Kind::MariaDb => ("mysql", String::new()),
            Kind::Postgres => ("postgres", format!("&application-name={}", self.table)),
        };
        let session = format!("&session-timeout={}s", self.session_timeout.as_secs());
        let mode = match self.mode {
            Mode::Advisory => format!("advisory{session}"),
            Mode::Lease => "lease".to_owned(),
            Mode::Row => format!("row{session}"),
        };
        let Self {
            database,
            table,
            connections,
            more,
            ..
        } = self;
        format!(
            "{scheme}://test:test@127.0.0.1:{port}/{database}?table={table}&mode={mode}\
             &connections={connections}{name}{more}"
        )
    }

    /// The URL as the client of the database knows it, without our parameters.
    pub(crate) fn plain_url(&self) -> String {
        let (port, database) = (self.server.port(), &self.database);
        let scheme = match self.kind() {
            Kind::MariaDb => "mysql",
            Kind::Postgres => "postgres",
        };
        format!("{scheme}://test:test@127.0.0.1:{port}/{database}")
    }

    /// A proxy before its server.
    pub(crate) fn proxy(&self) -> Proxy {
        self.proxy_to(self.server.port())
    }

    pub(crate) fn proxy_to(&self, port: u16) -> Proxy {
        match self.kind() {
            Kind::MariaDb => Proxy::mysql(port),
            Kind::Postgres => Proxy::postgres(port),
        }
    }

    /// SIGKILL, and a start on the same port with the same data.
    pub(crate) async fn restart(&self) {
        let server = self.server.clone();
        let restarted = tokio::task::spawn_blocking(move || server.own().restart());
        restarted.await.expect("it starts again");
    }

    /// A client as of another process.
    pub(crate) async fn open(&self) -> SqlLock {
        self.open_at(self.server.port()).await
    }

    pub(crate) async fn open_at(&self, port: u16) -> SqlLock {
        let locks = SqlLock::open(&self.url_at(port)).await;
        locks.expect("the server takes it")
    }

    /// Runs statements past the library.
    pub(crate) async fn sql(&self, text: impl Into<String>) -> Vec<Vec<String>> {
        self.server.sql(&self.database, text).await
    }

    /// The one number that a query returns.
    pub(crate) async fn number(&self, text: impl Into<String>) -> u64 {
        let rows = self.sql(text).await;
        let number = rows.first().and_then(|row| row.first()?.parse().ok());
        number.unwrap_or_else(|| panic!("{rows:?} is no number"))
    }

    /// Bytes as SQL writes them.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> String {
        let mut hex = String::new();
        for byte in bytes {
            write!(hex, "{byte:02x}").expect("a string takes everything");
        }
        match self.kind() {
            Kind::MariaDb => format!("x'{hex}'"),
            Kind::Postgres => format!("'\\x{hex}'::bytea"),
        }
    }
}
