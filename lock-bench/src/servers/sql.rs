//! PostgreSQL, MySQL and MariaDB: the minimal statements that exclude, and what the servers say of
//! themselves. What differs between them is a [`BenchDialect`].

use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use polylock::LockUrl;
#[cfg(feature = "mysql")]
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Either, query_as, raw_sql};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::names::unique;
use super::poll::poll;
use crate::connection::Opened;
use crate::probe::{Probe, TargetFacts};
use crate::subject::{Failure, INVALID, LOST, REFUSED, Subject};

pub(super) async fn probe(url: &LockUrl) -> Result<Arc<dyn Probe>, Failure> {
    let place = BareDatabase::of(url)?;
    Ok(Arc::new(SqlProbe {
        dialect: place.dialect,
        connection: tokio::sync::Mutex::new(place.connect().await?),
    }))
}

/// Makes the table of the run, if there is none; no bare commands without the leave to make it.
pub(super) async fn bare(url: &LockUrl, run: u64, of: &str) -> Result<Option<Opened>, Failure> {
    let (place, mode) = (BareDatabase::of(url)?, mode(url)?);
    let table = place.table(run);
    if mode != BareSqlMode::Advisory {
        if url.params().bool("create-table")? == Some(false) {
            return Ok(None);
        }
        let create = place.dialect.create.replace("{table}", &table);
        let mut connection = place.connect().await?;
        connection.run(create).await.map_err(failure)?;
    }
    let statements = match mode {
        BareSqlMode::Advisory => &place.dialect.advisory,
        BareSqlMode::Lease => &place.dialect.lease,
        BareSqlMode::Row => &place.dialect.row,
    };
    let max_connections = url.params().integer("connections", 1..=1_000)?;
    let lock = BareSqlLock {
        mode,
        statements,
        table: table.into(),
        idle: Arc::default(),
        permits: Arc::new(Semaphore::new(max_connections.unwrap_or(10))),
        place: Arc::new(place),
    };
    let mut opened = Opened::bare(of, statements.said, lock);
    opened.has_queue = mode != BareSqlMode::Lease;
    Ok(Some(opened))
}

pub(super) async fn clear(url: &LockUrl, run: u64) -> Result<(), Failure> {
    if mode(url)? == BareSqlMode::Advisory {
        return Ok(());
    }
    let place = BareDatabase::of(url)?;
    let table = place.table(run);
    let drop = place.dialect.drop.replace("{table}", &table);
    let dropped = place.connect().await?.run(drop).await;
    dropped.map_err(|error| failure(error).at(&format!("the table {table}")))?;
    Ok(())
}

/// What differs between databases. In statements, `{table}` is that of the run.
#[derive(Debug)]
struct BenchDialect {
    create: &'static str,
    drop: &'static str,
    seed: &'static str,
    advisory: BareStatements,
    lease: BareStatements,
    row: BareStatements,
    /// Gives the number of statements in its second column.
    count: &'static str,
    commands: &'static str,
    settings: &'static str,
}

/// The statements of a mode, with `{name}` of a lock, `{owner}` and `{ttl}` in microseconds. What is
/// acquired and released shows as a row that is returned or changed.
#[derive(Debug)]
struct BareStatements {
    /// What they are, for the report.
    said: &'static str,
    /// Prepares a session.
    session: &'static str,
    acquire: &'static str,
    release: &'static str,
}

#[cfg(feature = "postgres")]
static POSTGRES: BenchDialect = BenchDialect {
    // Processes that create it at the same time would hinder each other.
    create:
        "BEGIN; SELECT pg_advisory_xact_lock(8027139612042); CREATE TABLE IF NOT EXISTS {table} (
            name text PRIMARY KEY, owner text,
            expires_at timestamptz NOT NULL DEFAULT 'epoch') WITH (fillfactor = 70); COMMIT",
    // A transaction whose client is gone may still have a row.
    drop: "SET lock_timeout = '5s'; DROP TABLE IF EXISTS {table}",
    seed: "INSERT INTO {table} (name) VALUES ('{name}') ON CONFLICT DO NOTHING",
    advisory: BareStatements {
        said: "pg_advisory_lock and pg_advisory_unlock",
        session: "PREPARE acquire (text) AS SELECT pg_advisory_lock(hashtextextended($1, 0));
            PREPARE release (text) AS SELECT 1 WHERE pg_advisory_unlock(hashtextextended($1, 0))",
        acquire: "EXECUTE acquire('{name}')",
        release: "EXECUTE release('{name}')",
    },
    lease: BareStatements {
        said: LEASE,
        session: "PREPARE acquire (text, text, bigint) AS UPDATE {table} SET owner = $2,
                expires_at = now() + $3 * interval '1 microsecond'
                WHERE name = $1 AND (owner IS NULL OR expires_at <= now());
            PREPARE release (text, text) AS UPDATE {table} SET owner = NULL
                WHERE name = $1 AND owner = $2",
        acquire: "EXECUTE acquire('{name}', '{owner}', {ttl})",
        release: "EXECUTE release('{name}', '{owner}')",
    },
    row: BareStatements {
        said: ROW,
        session: "PREPARE acquire (text) AS SELECT name FROM {table} WHERE name = $1 FOR UPDATE",
        acquire: "BEGIN; EXECUTE acquire('{name}')",
        release: "COMMIT",
    },
    // Transactions of pg_stat_database would always be there, but up to ten seconds late.
    count: "SELECT 'calls', coalesce(sum(calls)::text, '') FROM pg_stat_statements
        WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())",
    commands: "statements, as pg_stat_statements has them",
    settings: "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes',
        'server_version', 'synchronous_commit', 'synchronous_standby_names', 'wal_sync_method')",
};

#[cfg(feature = "mysql")]
static MYSQL: BenchDialect = BenchDialect {
    create: "CREATE TABLE IF NOT EXISTS {table} (
            name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
            owner VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin,
            expires_at DATETIME(6) NOT NULL DEFAULT '1970-01-01') ENGINE = InnoDB",
    drop: "SET SESSION lock_wait_timeout = 5; DROP TABLE IF EXISTS {table}",
    seed: "INSERT IGNORE INTO {table} (name) VALUES ('{name}')",
    advisory: BareStatements {
        said: "GET_LOCK and RELEASE_LOCK",
        session: "",
        // A waiter whose connection is closed is in the queue until then. A name has 64 characters, and MySQL 9
        // has no SHA1.
        acquire: "SELECT 1 FROM DUAL WHERE GET_LOCK(SHA2('{name}', 224), 10) = 1",
        release: "SELECT 1 FROM DUAL WHERE RELEASE_LOCK(SHA2('{name}', 224)) = 1",
    },
    lease: BareStatements {
        said: LEASE,
        session: "",
        acquire: "UPDATE {table} SET owner = '{owner}',
                expires_at = NOW(6) + INTERVAL {ttl} MICROSECOND
            WHERE name = '{name}' AND (owner IS NULL OR expires_at <= NOW(6))",
        release: "UPDATE {table} SET owner = NULL WHERE name = '{name}' AND owner = '{owner}'",
    },
    row: BareStatements {
        said: ROW,
        session: "SET SESSION innodb_lock_wait_timeout = 1073741824",
        acquire: "BEGIN; SELECT name FROM {table} WHERE name = '{name}' FOR UPDATE",
        release: "COMMIT",
    },
    count: "SHOW GLOBAL STATUS LIKE 'Questions'",
    commands: "statements of all clients (Questions)",
    settings: "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_doublewrite',
        'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'version', 'version_comment')",
};

const LEASE: &str = "two updates of a row";
const ROW: &str = "BEGIN and SELECT .. FOR UPDATE in one message, and COMMIT";

/// How a lock is kept, as `lock_sql::SqlMode`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum BareSqlMode {
    Advisory,
    Lease,
    Row,
}

fn mode(url: &LockUrl) -> Result<BareSqlMode, Failure> {
    let mode = url.params().one_of("mode", &["row", "lease", "advisory"])?;
    Ok(match mode {
        Some("advisory") => BareSqlMode::Advisory,
        Some("lease") => BareSqlMode::Lease,
        _ => BareSqlMode::Row,
    })
}

/// A database, and where a table of the run belongs.
struct BareDatabase {
    dialect: &'static BenchDialect,
    options: BareSqlOptions,
    /// With a point behind it; empty where there are none.
    schema: String,
}

enum BareSqlOptions {
    #[cfg(feature = "mysql")]
    MySql(MySqlConnectOptions),
    #[cfg(feature = "postgres")]
    Postgres(PgConnectOptions),
}

/// As the locks have them: nothing is taken from files or, where that can be helped, from the
/// environment.
impl BareDatabase {
    fn of(url: &LockUrl) -> Result<Self, Failure> {
        let (host, database) = (url.expect_host()?, url.path().trim_start_matches('/'));
        let username = url.username().unwrap_or_default();
        match url.scheme() {
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let mut params = url.params();
                let schema = params.string("schema").unwrap_or("public");
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                if !schema.chars().all(is_word) {
                    let text = "a schema has letters, digits and underscores";
                    return Err(Failure::new(INVALID, text));
                }
                let options = PgConnectOptions::new_without_pgpass()
                    .host(&host.name)
                    .port(host.port_or(5432))
                    .username(username)
                    .password(url.password().unwrap_or_default())
                    .database(database)
                    .application_name("lock-bench")
                    .extra_float_digits(None)
                    .ssl_mode(PgSslMode::Disable)
                    .disable_statement_logging();
                Ok(Self {
                    dialect: &POSTGRES,
                    options: BareSqlOptions::Postgres(options),
                    schema: format!("{schema}."),
                })
            }
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => {
                let mut options = MySqlConnectOptions::new()
                    .port(host.port_or(3306))
                    .username(username)
                    .database(database)
                    .charset("utf8mb4")
                    .timezone(Some("+00:00".to_owned()))
                    .pipes_as_concat(false)
                    .ssl_mode(MySqlSslMode::Disabled)
                    .disable_statement_logging();
                options = match host.name.starts_with('/') {
                    true => options.socket(&host.name),
                    false => options.host(&host.name),
                };
                if let Some(password) = url.password() {
                    options = options.password(password);
                }
                Ok(Self {
                    dialect: &MYSQL,
                    options: BareSqlOptions::MySql(options),
                    schema: String::new(),
                })
            }
            _ => Err(Failure::new(INVALID, "not the URL of a database")),
        }
    }

    fn table(&self, run: u64) -> String {
        format!("{}polylock_bench_{run:x}", self.schema)
    }

    async fn connect(&self) -> Result<BareConnection, Failure> {
        let connected = match &self.options {
            #[cfg(feature = "mysql")]
            BareSqlOptions::MySql(options) => options.connect().await.map(BareConnection::MySql),
            #[cfg(feature = "postgres")]
            BareSqlOptions::Postgres(options) => {
                options.connect().await.map(BareConnection::Postgres)
            }
        };
        connected.map_err(failure)
    }
}

#[derive(Debug)]
enum BareConnection {
    #[cfg(feature = "mysql")]
    MySql(MySqlConnection),
    #[cfg(feature = "postgres")]
    Postgres(PgConnection),
}

/// The same for each kind of connection.
macro_rules! with {
    ($connection:expr, $it:ident => $body:expr) => {
        match $connection {
            #[cfg(feature = "mysql")]
            BareConnection::MySql($it) => $body,
            #[cfg(feature = "postgres")]
            BareConnection::Postgres($it) => $body,
        }
    };
}

impl BareConnection {
    async fn ping(&mut self) -> Result<(), sqlx::Error> {
        with!(self, it => it.ping().await)
    }

    /// Executes a text as it is, and tells whether it gave or changed a row.
    async fn run(&mut self, text: impl Into<String>) -> Result<bool, sqlx::Error> {
        let text = AssertSqlSafe(text.into());
        with!(self, it => {
            let ended = raw_sql(text).fetch_many(it).try_fold(false, |found, part| {
                let is_found = match part {
                    Either::Left(done) => done.rows_affected() > 0,
                    Either::Right(_row) => true,
                };
                ready(Ok(found || is_found))
            });
            ended.await
        })
    }

    async fn rows(&mut self, text: &'static str) -> Result<Vec<(String, String)>, sqlx::Error> {
        with!(self, it => query_as(text).fetch_all(it).await)
    }
}

/// What a lock takes at least. A future that is dropped closes its connection, and leaves a lease for
/// a ttl.
///
/// Unlike the pool of the client, it does not ask a connection that comes back whether it is alive:
/// that would be a command more than the least.
#[derive(Clone)]
struct BareSqlLock {
    place: Arc<BareDatabase>,
    mode: BareSqlMode,
    statements: &'static BareStatements,
    table: Arc<str>,
    idle: Arc<Mutex<Vec<BareConnection>>>,
    permits: Arc<Semaphore>,
}

/// A connection in use. It is closed unless it is put back, and with it ends what the server does
/// for it.
struct Lent {
    connection: BareConnection,
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone)]
struct BareSqlKey {
    seed: Arc<str>,
    acquire: Arc<str>,
    release: Arc<str>,
    has_row: Arc<AtomicBool>,
}

struct HeldSqlLock {
    key: BareSqlKey,
    owner: String,
    /// That of the transaction or of the advisory lock.
    session: Option<Lent>,
}

impl BareSqlLock {
    /// Waits for a connection, or makes one.
    async fn session(&self) -> Result<Lent, Failure> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => {
                let mut connection = self.place.connect().await?;
                let session = self.statements.session;
                if !session.is_empty() {
                    let session = session.replace("{table}", &self.table);
                    connection.run(session).await.map_err(failure)?;
                }
                connection
            }
        };
        Ok(Lent {
            connection,
            _permit: permit.expect("BUG: the semaphore is never closed"),
        })
    }

    fn put_back(&self, session: Lent) {
        self.idle().push(session.connection);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<BareConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a lock its row, at the first time that a contender wants it.
    async fn seed(&self, key: &BareSqlKey) -> Result<(), Failure> {
        if self.mode == BareSqlMode::Advisory || key.has_row.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut session = self.session().await?;
        session.connection.run(&*key.seed).await.map_err(failure)?;
        self.put_back(session);
        key.has_row.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Acquires a lease if it is free, or has the server wait, in its order.
    async fn acquire_now(&self, key: &BareSqlKey) -> Result<Option<HeldSqlLock>, Failure> {
        self.seed(key).await?;
        let (key, owner) = (key.clone(), unique());
        let text = key.acquire.replace("{owner}", &owner);
        let mut session = self.session().await?;
        let mut is_acquired = session.connection.run(&*text).await.map_err(failure)?;
        let session = match self.mode {
            BareSqlMode::Lease => {
                self.put_back(session);
                None
            }
            BareSqlMode::Advisory | BareSqlMode::Row => {
                // The server gives up after its own limit.
                while !is_acquired {
                    is_acquired = session.connection.run(&*text).await.map_err(failure)?;
                }
                Some(session)
            }
        };
        Ok(is_acquired.then_some(HeldSqlLock {
            key,
            owner,
            session,
        }))
    }
}

impl Subject for BareSqlLock {
    type Key = BareSqlKey;
    type Held = HeldSqlLock;

    fn key(&self, name: &str, ttl: Duration) -> Result<BareSqlKey, Failure> {
        if name.contains(['\\', '\0', '\'']) {
            let text = "the name of a lock has no backslash, no quote and no NUL";
            return Err(Failure::new(INVALID, text));
        }
        let ttl = ttl.as_micros().to_string();
        let text = |statement: &str| {
            let statement = statement.replace("{table}", &self.table);
            statement
                .replace("{ttl}", &ttl)
                .replace("{name}", name)
                .into()
        };
        Ok(BareSqlKey {
            seed: text(self.place.dialect.seed),
            acquire: text(self.statements.acquire),
            release: text(self.statements.release),
            has_row: Arc::default(),
        })
    }

    async fn acquire(
        &self,
        key: &BareSqlKey,
        wait: Duration,
    ) -> Result<Option<HeldSqlLock>, Failure> {
        if self.mode == BareSqlMode::Lease {
            return poll(wait, || self.acquire_now(key)).await;
        }
        // At the end the connection is closed, and with it ends its place in the queue.
        let acquired = timeout(wait, self.acquire_now(key)).await;
        acquired.unwrap_or(Ok(None))
    }

    async fn release(&self, held: HeldSqlLock) -> Result<(), Failure> {
        let mut session = match held.session {
            Some(session) => session,
            None => self.session().await?,
        };
        let release = held.key.release.replace("{owner}", &held.owner);
        let released = session.connection.run(release).await;
        let is_released = released.map_err(failure)? || self.mode == BareSqlMode::Row;
        self.put_back(session);
        match is_released {
            true => Ok(()),
            false => Err(Failure::new(
                LOST,
                "another holder released it or took it over",
            )),
        }
    }
}

struct SqlProbe {
    dialect: &'static BenchDialect,
    connection: tokio::sync::Mutex<BareConnection>,
}

#[async_trait]
impl Probe for SqlProbe {
    async fn ping(&self) -> Result<(), Failure> {
        // A command of the protocol or an empty query, which is no statement.
        let mut connection = self.connection.lock().await;
        connection.ping().await.map_err(failure)
    }

    /// None unless the server counts, and this user may read it.
    async fn commands(&self) -> Result<Option<u64>, Failure> {
        match self.connection.lock().await.rows(self.dialect.count).await {
            Ok(rows) => Ok(rows.first().and_then(|(_, count)| count.parse().ok())),
            Err(sqlx::Error::Database(_)) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    }

    async fn facts(&self) -> Result<TargetFacts, Failure> {
        let mut connection = self.connection.lock().await;
        let rows = connection.rows(self.dialect.settings).await;
        drop(connection);
        let rows = rows.map_err(failure)?;
        let mut facts: TargetFacts = rows.into_iter().collect();
        facts
            .values_mut()
            .filter(|value| value.is_empty())
            .for_each(|v| "none".clone_into(v));
        let version = match (facts.remove("server_version"), facts.remove("version")) {
            (Some(version), _) => format!("PostgreSQL {version}"),
            (None, version) => {
                let (version, comment) =
                    (version.unwrap_or_default(), facts.remove("version_comment"));
                let comment = comment.unwrap_or_default();
                let is_mariadb = version.contains("MariaDB") || comment.contains("MariaDB");
                let name = if is_mariadb { "MariaDB" } else { "MySQL" };
                format!("{name} {}", version.split('-').next().unwrap_or_default())
            }
        };
        facts.insert("version".to_owned(), version);
        let commands = match self.commands().await? {
            Some(_) => self.dialect.commands,
            None => "not counted: the statistics of statements cannot be read in this database",
        };
        facts.insert("commands".to_owned(), commands.to_owned());
        Ok(facts)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: sqlx::Error) -> Failure {
    let kind = match &error {
        sqlx::Error::Database(_) => REFUSED,
        _ => "unavailable",
    };
    Failure::of(kind, &error)
}
