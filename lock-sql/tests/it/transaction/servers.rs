use std::fmt::Debug;
use std::time::Duration;

use lock_testkit::servers::{
    MariaDbServer, PostgresServer, SharedMariaDb, SharedPostgres, data_dir,
};
use polylock_core::{Error, FencingToken, Wait};
use polylock_sql::transaction::{Connection, Fence, TransactionLocks, WriteError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, MySqlConnection, PgConnection, Transaction};
use tempfile::TempDir;

use crate::server::support::kill;

/// A database with `counter`, a table of the application.
pub(crate) trait Home: Debug + Send + Sized + Sync + 'static {
    type Database: sqlx::Database<Connection: Connection<Database = Self::Database> + Debug>;

    /// Name of the backend in errors.
    const NAME: &str;
    /// Begins a transaction that may write.
    const BEGIN: &str = "BEGIN";

    async fn start() -> Self;

    async fn connect(&self) -> Raw<Self>;

    /// What a statement reads, as text.
    fn read(connection: &mut Raw<Self>, sql: &'static str) -> impl Future<Output = String> + Send;
}

/// A server, whose database has the table of the locks as well.
pub(crate) trait Server: Home {
    /// The limit of the session for waits, and something that is not the default.
    const LIMIT: &str;
    const SET_LIMIT: &str;
    /// The rights on the table that locks need.
    const GRANT: &str;

    /// Connects as a user with these rights on the table of the locks and no others.
    async fn connect_with(&self, rights: &str) -> Raw<Self>;

    /// Takes tokens away up to this one.
    fn raise(token: u64) -> String;

    /// Sets the isolation of the transactions to come.
    fn isolation(level: &str) -> &'static str;

    /// Runs statements as the administrator.
    fn sql(&self, text: &str) -> Vec<Vec<String>>;

    /// Ends all connections of the user.
    fn kill_all(&self);
}

pub(crate) type Raw<S> = <<S as Home>::Database as sqlx::Database>::Connection;

#[derive(Debug)]
pub(crate) struct Postgres {
    server: SharedPostgres,
    url: String,
}

#[derive(Debug)]
pub(crate) struct MariaDb {
    server: SharedMariaDb,
    url: String,
}

impl Home for Postgres {
    type Database = sqlx::Postgres;

    const NAME: &str = "postgres";

    async fn start() -> Self {
        let server = PostgresServer::shared();
        let url = server.database();
        let this = Self { server, url };
        let mut raw = this.connect().await;
        run(&mut raw, table(&this.url)).await;
        run(&mut raw, COUNTER).await;
        this
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    async fn read(raw: &mut PgConnection, sql: &'static str) -> String {
        sqlx::query_scalar(sql).fetch_one(raw).await.unwrap()
    }
}

impl Server for Postgres {
    const LIMIT: &str =
        "SELECT current_setting('lock_timeout') || current_setting('statement_timeout')";
    const SET_LIMIT: &str = "SET lock_timeout = '7s'; SET statement_timeout = '1min'";
    const GRANT: &str = "SELECT, INSERT, UPDATE ON \"polylock_locks\"";

    async fn connect_with(&self, rights: &str) -> PgConnection {
        let user = format!(
            "user_{}",
            self.server.sql(&self.url, "SELECT txid_current()")[0][0]
        );
        self.sql(&format!(
            "CREATE ROLE {user} LOGIN PASSWORD 'test'; \
             GRANT {rights} ON polylock_locks TO {user}; \
             GRANT SELECT, UPDATE ON SEQUENCE polylock_locks_token TO {user}"
        ));
        let url = self.url.replace("test:test", &format!("{user}:test"));
        PgConnection::connect(&url).await.unwrap()
    }

    fn raise(token: u64) -> String {
        format!("SELECT setval('polylock_locks_token', {token})")
    }

    fn isolation(level: &str) -> &'static str {
        format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}").leak()
    }

    fn sql(&self, text: &str) -> Vec<Vec<String>> {
        self.server.sql(&self.url, text)
    }

    fn kill_all(&self) {
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE usename = 'test' AND datname = current_database()",
        );
    }
}

impl Home for MariaDb {
    type Database = sqlx::MySql;

    const NAME: &str = "mysql";

    async fn start() -> Self {
        let server = MariaDbServer::shared();
        let url = server.database();
        let this = Self { server, url };
        // Names must be told apart although the database does not.
        this.sql("ALTER DATABASE CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
        let mut raw = this.connect().await;
        run(&mut raw, table(&this.url)).await;
        run(&mut raw, COUNTER).await;
        this
    }

    async fn connect(&self) -> MySqlConnection {
        let mut raw = MySqlConnection::connect(&self.url).await.unwrap();
        run(&mut raw, "SET SESSION sql_mode = ''").await;
        raw
    }

    async fn read(raw: &mut MySqlConnection, sql: &'static str) -> String {
        sqlx::query_scalar(sql).fetch_one(raw).await.unwrap()
    }
}

impl Server for MariaDb {
    const LIMIT: &str = "SELECT CAST(@@SESSION.innodb_lock_wait_timeout AS CHAR)";
    const SET_LIMIT: &str = "SET SESSION innodb_lock_wait_timeout = 7";
    const GRANT: &str = "SELECT, INSERT, UPDATE ON `polylock_locks`";

    async fn connect_with(&self, rights: &str) -> MySqlConnection {
        let user = format!("user_{}", self.sql("SELECT UUID_SHORT()")[0][0]);
        self.sql(&format!(
            "CREATE USER {user} IDENTIFIED BY 'test'; \
             GRANT {rights} ON polylock_locks TO {user}; \
             GRANT SELECT, INSERT, DELETE ON polylock_locks_token TO {user}"
        ));
        let url = self.url.replace("test:test", &format!("{user}:test"));
        MySqlConnection::connect(&url).await.unwrap()
    }

    fn raise(token: u64) -> String {
        format!(
            "/*M!100300 DO SETVAL(polylock_locks_token, {token}) */ \
             /*!80000 INSERT INTO polylock_locks_token (id) VALUES ({token}) */"
        )
    }

    fn isolation(level: &str) -> &'static str {
        format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}").leak()
    }

    fn sql(&self, text: &str) -> Vec<Vec<String>> {
        self.server.sql(&self.url, text)
    }

    fn kill_all(&self) {
        let of_this = format!(
            "SELECT id FROM {} WHERE user = 'test' AND db = DATABASE()",
            MariaDbServer::PROCESS_LIST
        );
        for row in self.sql(&of_this) {
            self.sql(&kill("CONNECTION", &row[0]));
        }
    }
}

/// A file, in which locks make their own tables.
#[derive(Debug)]
pub(crate) struct Sqlite(TempDir);

impl Home for Sqlite {
    type Database = sqlx::Sqlite;

    const NAME: &str = "sqlite";
    const BEGIN: &str = "BEGIN IMMEDIATE";

    async fn start() -> Self {
        let this = Self(tempfile::tempdir_in(data_dir()).unwrap());
        let mut raw = this.connect().await;
        run(&mut raw, "PRAGMA journal_mode = WAL").await;
        run(&mut raw, COUNTER).await;
        this
    }

    async fn connect(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.0.path().join("db"));
        let options = options
            .busy_timeout(Duration::from_secs(30))
            .create_if_missing(true)
            .synchronous(SqliteSynchronous::Off);
        options.connect().await.unwrap()
    }

    async fn read(raw: &mut SqliteConnection, sql: &'static str) -> String {
        sqlx::query_scalar(sql).fetch_one(raw).await.unwrap()
    }
}

/// Runs a statement that must succeed.
pub(crate) async fn run<C: Connection>(connection: &mut C, sql: &'static str) -> u64 {
    connection.run(sqlx::raw_sql(sql)).await.unwrap()
}

/// Passes a fence with a token that must not be stale.
pub(crate) async fn pass<C: Connection>(connection: &mut C, resource: &str, token: FencingToken) {
    let passed = Fence::new().check(connection, resource, token).await;
    passed.unwrap();
}

/// The error of a check that could not be made.
pub(crate) fn refused(checked: Result<(), WriteError>) -> Error {
    match checked {
        Err(WriteError::Check(error)) => error,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn begin<S: Home>(raw: &mut Raw<S>) -> Transaction<'_, S::Database> {
    raw.begin_with(S::BEGIN).await.unwrap()
}

pub(crate) fn locks() -> TransactionLocks {
    TransactionLocks::new().with_wait(Wait::AtMost(Duration::from_secs(20)))
}

pub(crate) fn locks_within(limit: Duration) -> TransactionLocks {
    TransactionLocks::new().with_wait(Wait::AtMost(limit))
}

/// The statements that make the table.
pub(crate) fn table(url: &str) -> &'static str {
    crate::checks::schema(url).sql().leak()
}

pub(crate) const COUNTER: &str = "CREATE TABLE counter (n bigint NOT NULL, token bigint NOT NULL); \
                       INSERT INTO counter VALUES (0, 0)";
