//! PostgreSQL, MySQL and MariaDB: the least statements that exclude, and what the servers say of
//! themselves. What differs between them is a [`Dialect`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use polylock::LockUrl;
#[cfg(feature = "mysql")]
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, query, query_as, query_scalar, raw_sql,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::{unique, until};
use crate::subject::{Failure, INVALID, LOST, REFUSED, Subject};
use crate::target::{Bare, Probe, runner};

pub(super) async fn probe(url: &LockUrl) -> Result<Arc<dyn Probe>, Failure> {
    let place = Place::of(url)?;
    let connection = place.options.connect().await.map_err(failure)?;
    let own = 0;
    Ok(Arc::new(ServerProbe {
        dialect: place.dialect,
        counted: tokio::sync::Mutex::new(Counted { connection, own }),
    }))
}

pub(super) async fn bare(url: &LockUrl, run: u64) -> Result<Option<Bare>, Failure> {
    let place = Place::of(url)?;
    let (mode, advisory) = (place.mode, place.dialect.advisory);
    let least = BareLock::open(place, run).await?;
    Ok(least.map(|least| match mode {
        Mode::Advisory => Bare::new(advisory, runner(least)).waiting(),
        Mode::Lease => Bare::new("two updates of a row", runner(least)),
        Mode::Row => {
            let commands = "BEGIN and SELECT .. FOR UPDATE in one message, and COMMIT";
            Bare::new(commands, runner(least)).waiting()
        }
    }))
}

pub(super) async fn clear(url: &LockUrl, run: u64) -> Result<(), Failure> {
    let place = Place::of(url)?;
    if place.mode == Mode::Advisory {
        return Ok(());
    }
    let table = place.table(run);
    let mut connection = place.options.connect().await.map_err(failure)?;
    // A transaction whose client is gone may still have a row.
    let dropped = connection
        .raw(place.dialect.drop.replace("{table}", &table))
        .await;
    dropped.map_err(|error| failure(error).at(&format!("the table {table}")))?;
    Ok(())
}

/// Statements of a database. `{table}` is that of the run, `{name}` the name of a lock as a literal.
#[derive(Debug)]
struct Dialect {
    create: &'static str,
    drop: &'static str,
    /// Prepares a session for locks of rows.
    session: &'static str,
    seed: &'static str,
    take: &'static str,
    free: &'static str,
    lock_row: &'static str,
    /// What the advisory lock is, for the report.
    advisory: &'static str,
    lock: &'static str,
    unlock: &'static str,
    /// Whether an advisory lock has a name, and not a number.
    locks_by_name: bool,
    /// Gives the number of statements in its second column.
    count: &'static str,
    /// Whether that number has this statement in it already.
    counts_itself: bool,
    commands: &'static str,
    settings: &'static str,
}

#[cfg(feature = "postgres")]
static POSTGRES: Dialect = Dialect {
    // Those who make it at the same time would hinder each other.
    create:
        "BEGIN; SELECT pg_advisory_xact_lock(8027139612042); CREATE TABLE IF NOT EXISTS {table} (
            name text PRIMARY KEY, owner text, token bigint NOT NULL DEFAULT 0,
            expires_at timestamptz NOT NULL DEFAULT 'epoch') WITH (fillfactor = 70); COMMIT",
    drop: "SET lock_timeout = '5s'; DROP TABLE IF EXISTS {table}",
    session: "PREPARE lock_bench (text) AS SELECT token FROM {table} WHERE name = $1 FOR UPDATE",
    seed: "INSERT INTO {table} (name) VALUES ($1) ON CONFLICT DO NOTHING",
    take: "UPDATE {table} SET owner = $1, token = token + 1,
            expires_at = now() + $2 * interval '1 microsecond'
        WHERE name = $3 AND (owner IS NULL OR expires_at <= now()) RETURNING token",
    free: "UPDATE {table} SET owner = NULL WHERE owner = $1 AND name = $2",
    lock_row: "BEGIN; EXECUTE lock_bench({name})",
    advisory: "pg_advisory_lock and pg_advisory_unlock",
    lock: "SELECT 1::bigint FROM pg_advisory_lock($1)",
    unlock: "SELECT pg_advisory_unlock($1)::int::bigint",
    locks_by_name: false,
    // Transactions of pg_stat_database would always be there, but up to ten seconds late.
    count: "SELECT 'calls', coalesce(sum(calls)::text, '') FROM pg_stat_statements
        WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())",
    counts_itself: false,
    commands: "statements, as pg_stat_statements has them",
    settings: "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes',
        'server_version', 'synchronous_commit', 'synchronous_standby_names', 'wal_sync_method')",
};

#[cfg(feature = "mysql")]
static MYSQL: Dialect = Dialect {
    create: "CREATE TABLE IF NOT EXISTS {table} (
            name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
            owner VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin,
            token BIGINT NOT NULL DEFAULT 0,
            expires_at DATETIME(6) NOT NULL DEFAULT '1970-01-01') ENGINE = InnoDB",
    drop: "SET SESSION lock_wait_timeout = 5; DROP TABLE IF EXISTS {table}",
    session: "SET SESSION innodb_lock_wait_timeout = 1073741824",
    seed: "INSERT IGNORE INTO {table} (name) VALUES (?)",
    take: "UPDATE {table} SET owner = ?, token = LAST_INSERT_ID(token + 1),
            expires_at = NOW(6) + INTERVAL ? MICROSECOND
        WHERE name = ? AND (owner IS NULL OR expires_at <= NOW(6))",
    free: "UPDATE {table} SET owner = NULL WHERE owner = ? AND name = ?",
    lock_row: "BEGIN; SELECT token FROM {table} WHERE name = {name} FOR UPDATE",
    advisory: "GET_LOCK and RELEASE_LOCK",
    // A waiter whose connection is closed is in the queue until then.
    lock: "SELECT GET_LOCK(?, 10)",
    unlock: "SELECT RELEASE_LOCK(?)",
    locks_by_name: true,
    count: "SHOW GLOBAL STATUS LIKE 'Questions'",
    counts_itself: true,
    commands: "statements of all clients (Questions)",
    settings: "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_doublewrite',
        'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'version', 'version_comment')",
};

/// How a lock is kept, as `lock_sql::SqlMode`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    Advisory,
    Lease,
    Row,
}

/// What a URL says of a database and its locks.
struct Place {
    dialect: &'static Dialect,
    options: Options,
    mode: Mode,
    max_connections: usize,
    may_create: bool,
    database: String,
    /// With a point behind it; empty where there are none.
    schema: String,
}

impl Place {
    fn of(url: &LockUrl) -> Result<Self, Failure> {
        let mut params = url.params();
        let mode = match params.one_of("mode", &["row", "lease", "advisory"])? {
            Some("advisory") => Mode::Advisory,
            Some("lease") => Mode::Lease,
            _ => Mode::Row,
        };
        let schema = params.string("schema").unwrap_or("public");
        if !schema
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            let text = "a schema has letters, digits and underscores";
            return Err(Failure::new(INVALID, text));
        }
        let (dialect, options, schema): (_, _, String) = match url.scheme() {
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => (&POSTGRES, Options::postgres(url)?, format!("{schema}.")),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => (&MYSQL, Options::mysql(url)?, String::new()),
            _ => return Err(Failure::new(INVALID, "not the URL of a database")),
        };
        Ok(Self {
            dialect,
            options,
            mode,
            max_connections: params.integer("connections", 1..=1_000)?.unwrap_or(10),
            may_create: params.bool("create-table")? != Some(false),
            database: database(url).to_owned(),
            schema,
        })
    }

    fn table(&self, run: u64) -> String {
        format!("{}polylock_bench_{run:x}", self.schema)
    }
}

fn database(url: &LockUrl) -> &str {
    url.path().trim_start_matches('/')
}

#[derive(Clone, Debug)]
enum Options {
    #[cfg(feature = "mysql")]
    MySql(MySqlConnectOptions),
    #[cfg(feature = "postgres")]
    Postgres(PgConnectOptions),
}

/// As the locks have them: nothing is taken from files or, where that can be helped, from the
/// environment.
impl Options {
    #[cfg(feature = "postgres")]
    fn postgres(url: &LockUrl) -> Result<Self, Failure> {
        let host = url.expect_host()?;
        let options = PgConnectOptions::new_without_pgpass()
            .host(&host.name)
            .port(host.port_or(5432))
            .username(url.username().unwrap_or_default())
            .password(url.password().unwrap_or_default())
            .database(database(url))
            .application_name("lock-bench")
            .extra_float_digits(None)
            .ssl_mode(PgSslMode::Disable)
            .disable_statement_logging();
        Ok(Self::Postgres(options))
    }

    #[cfg(feature = "mysql")]
    fn mysql(url: &LockUrl) -> Result<Self, Failure> {
        let host = url.expect_host()?;
        let mut options = MySqlConnectOptions::new()
            .port(host.port_or(3306))
            .username(url.username().unwrap_or_default())
            .database(database(url))
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
        Ok(Self::MySql(options))
    }

    async fn connect(&self) -> Result<Connection, sqlx::Error> {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(options) => options.connect().await.map(Connection::MySql),
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => options.connect().await.map(Connection::Postgres),
        }
    }
}

#[derive(Debug)]
enum Connection {
    #[cfg(feature = "mysql")]
    MySql(MySqlConnection),
    #[cfg(feature = "postgres")]
    Postgres(PgConnection),
}

enum Bind<'a> {
    Number(i64),
    Text(&'a str),
}

/// The same for each kind of connection.
macro_rules! with {
    ($connection:expr, $it:ident => $body:expr) => {
        match $connection {
            #[cfg(feature = "mysql")]
            Connection::MySql($it) => $body,
            #[cfg(feature = "postgres")]
            Connection::Postgres($it) => $body,
        }
    };
}

macro_rules! bound {
    ($query:expr, $binds:expr) => {{
        let mut query = $query;
        for bind in $binds {
            query = match bind {
                Bind::Number(number) => query.bind(*number),
                Bind::Text(text) => query.bind((*text).to_owned()),
            };
        }
        query
    }};
}

impl Connection {
    async fn ping(&mut self) -> Result<(), sqlx::Error> {
        with!(self, it => it.ping().await)
    }

    /// Executes a text as it is, and tells how many rows it gave.
    async fn raw(&mut self, text: impl Into<String>) -> Result<usize, sqlx::Error> {
        let text = AssertSqlSafe(text.into());
        with!(self, it => raw_sql(text).fetch_all(it).await.map(|rows| rows.len()))
    }

    async fn rows(&mut self, text: &'static str) -> Result<Vec<(String, String)>, sqlx::Error> {
        with!(self, it => query_as(text).fetch_all(it).await)
    }

    async fn scalar(
        &mut self,
        text: &'static str,
        bind: Bind<'_>,
    ) -> Result<Option<i64>, sqlx::Error> {
        with!(self, it => {
            let query = bound!(query_scalar::<_, Option<i64>>(text), &[bind]);
            query.fetch_one(it).await
        })
    }

    /// Executes a statement, and tells how many rows it changed.
    async fn execute(&mut self, text: &Arc<str>, binds: &[Bind<'_>]) -> Result<u64, sqlx::Error> {
        let text = AssertSqlSafe(Arc::clone(text));
        with!(self, it => {
            let done = bound!(query(text), binds).execute(it).await;
            done.map(|done| done.rows_affected())
        })
    }

    /// Takes a lease, and tells its token.
    async fn take(
        &mut self,
        text: &Arc<str>,
        binds: &[Bind<'_>],
    ) -> Result<Option<u64>, sqlx::Error> {
        let text = AssertSqlSafe(Arc::clone(text));
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(it) => {
                let done = bound!(query(text), binds).execute(it).await?;
                Ok((done.rows_affected() > 0).then(|| done.last_insert_id()))
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(it) => {
                let query = bound!(query_scalar::<_, i64>(text), binds);
                let token = query.fetch_optional(it).await?;
                Ok(token.map(|token| u64::try_from(token).unwrap_or_default()))
            }
        }
    }
}

/// Connections of which each is lent to one at a time.
///
/// Unlike a pool of the client, it does not ask a connection that comes back whether it is alive:
/// that would be a command more than the least.
#[derive(Clone)]
struct Pool {
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

/// A connection in use. It is closed unless it is given back, and with it ends what the server does
/// for it.
struct Lent {
    connection: Connection,
    pool: Pool,
    _permit: OwnedSemaphorePermit,
}

impl Lent {
    fn give_back(self) {
        let Self {
            connection,
            pool,
            _permit,
        } = self;
        // Before the permit goes.
        pool.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
    }
}

/// What a lock takes at least. A future that is dropped closes its connection, and leaves a lease for
/// a ttl.
#[derive(Clone)]
struct BareLock {
    place: Arc<Place>,
    pool: Pool,
    texts: Arc<Texts>,
}

/// Statements of the run.
struct Texts {
    session: String,
    seed: Arc<str>,
    take: Arc<str>,
    free: Arc<str>,
    lock_row: String,
}

#[derive(Clone)]
struct Key {
    name: Arc<str>,
    /// Of all databases of the server.
    number: i64,
    /// How MySQL names that.
    advisory: Arc<str>,
    lock_row: Arc<str>,
    has_row: Arc<AtomicBool>,
}

enum Held {
    Lease {
        key: Key,
        owner: String,
        token: u64,
    },
    /// Of a session: the row in its transaction, or the advisory lock.
    Session {
        key: Key,
        session: Lent,
    },
}

impl BareLock {
    /// Makes the table of the run, where there is none; none without the leave to make it.
    async fn open(place: Place, run: u64) -> Result<Option<Self>, Failure> {
        let table = place.table(run);
        let text = |statement: &str| statement.replace("{table}", &table);
        let dialect = place.dialect;
        if place.mode != Mode::Advisory {
            if !place.may_create {
                return Ok(None);
            }
            let mut connection = place.options.connect().await.map_err(failure)?;
            connection
                .raw(text(dialect.create))
                .await
                .map_err(failure)?;
        }
        Ok(Some(Self {
            pool: Pool {
                idle: Arc::default(),
                permits: Arc::new(Semaphore::new(place.max_connections)),
            },
            texts: Arc::new(Texts {
                session: text(dialect.session),
                seed: text(dialect.seed).into(),
                take: text(dialect.take).into(),
                free: text(dialect.free).into(),
                lock_row: text(dialect.lock_row),
            }),
            place: Arc::new(place),
        }))
    }

    /// Waits for a connection, or makes one.
    async fn session(&self) -> Result<Lent, Failure> {
        let permit = Arc::clone(&self.pool.permits).acquire_owned().await;
        let idle = self
            .pool
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let connection = match idle {
            Some(connection) => connection,
            None => {
                let mut connection = self.place.options.connect().await.map_err(failure)?;
                if self.place.mode == Mode::Row {
                    connection
                        .raw(self.texts.session.as_str())
                        .await
                        .map_err(failure)?;
                }
                connection
            }
        };
        Ok(Lent {
            connection,
            pool: self.pool.clone(),
            _permit: permit.expect("BUG: the semaphore is never closed"),
        })
    }

    /// Gives a lock its row, at the first time that a contender wants it.
    async fn seed(&self, key: &Key) -> Result<(), Failure> {
        if self.place.mode == Mode::Advisory || key.has_row.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut session = self.session().await?;
        let binds = [Bind::Text(&key.name)];
        let seeded = session.connection.execute(&self.texts.seed, &binds).await;
        seeded.map_err(failure)?;
        session.give_back();
        key.has_row.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn lease(&self, key: &Key, ttl: Duration) -> Result<Option<Held>, Failure> {
        let owner = unique();
        let micros = i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
        let mut session = self.session().await?;
        let binds = [
            Bind::Text(&owner),
            Bind::Number(micros),
            Bind::Text(&key.name),
        ];
        let token = session
            .connection
            .take(&self.texts.take, &binds)
            .await
            .map_err(failure)?;
        session.give_back();
        let key = key.clone();
        Ok(token.map(|token| Held::Lease { key, owner, token }))
    }

    /// Has the server wait, in its order.
    async fn queue(&self, key: &Key) -> Result<Held, Failure> {
        self.seed(key).await?;
        let mut session = self.session().await?;
        let connection = &mut session.connection;
        if self.place.mode == Mode::Row {
            connection.raw(&*key.lock_row).await.map_err(failure)?;
        } else {
            let dialect = self.place.dialect;
            // The server gives up after its own limit.
            let lock = || dialect.advisory(key);
            while connection
                .scalar(dialect.lock, lock())
                .await
                .map_err(failure)?
                != Some(1)
            {}
        }
        let key = key.clone();
        Ok(Held::Session { key, session })
    }
}

impl Dialect {
    fn advisory<'a>(&self, key: &'a Key) -> Bind<'a> {
        match self.locks_by_name {
            true => Bind::Text(&key.advisory),
            false => Bind::Number(key.number),
        }
    }
}

impl Subject for BareLock {
    type Key = Key;
    type Held = Held;

    fn key(&self, name: &str) -> Result<Key, Failure> {
        if name.contains(['\\', '\0', '\'']) {
            let text = "the name of a lock has no backslash, no quote and no NUL";
            return Err(Failure::new(INVALID, text));
        }
        let lock_row = self.texts.lock_row.replace("{name}", &format!("'{name}'"));
        let number = number_of(&format!("{}/{name}", self.place.database));
        Ok(Key {
            name: name.into(),
            number,
            advisory: format!("lock-bench:{number:016x}").into(),
            lock_row: lock_row.into(),
            has_row: Arc::default(),
        })
    }

    async fn acquire(
        &self,
        key: &Key,
        ttl: Duration,
        wait: Option<Duration>,
    ) -> Result<Option<Held>, Failure> {
        if self.place.mode == Mode::Lease {
            self.seed(key).await?;
            return until(wait, || self.lease(key, ttl)).await;
        }
        // At the end the connection is closed, and with it ends its place in the queue.
        match timeout(wait.unwrap_or(Duration::MAX), self.queue(key)).await {
            Ok(held) => held.map(Some),
            Err(_) => Ok(None),
        }
    }

    fn token(held: &Held) -> Option<u64> {
        match held {
            Held::Lease { token, .. } => Some(*token),
            Held::Session { .. } => None,
        }
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        let (freed, session) = match held {
            Held::Lease { key, owner, .. } => {
                let mut session = self.session().await?;
                let binds = [Bind::Text(&owner), Bind::Text(&key.name)];
                let freed = session.connection.execute(&self.texts.free, &binds).await;
                (freed.map(|rows| rows == 1), session)
            }
            Held::Session { mut session, .. } if self.place.mode == Mode::Row => {
                let committed = session.connection.raw("COMMIT").await;
                (committed.map(|_| true), session)
            }
            Held::Session { key, mut session } => {
                let dialect = self.place.dialect;
                let unlock = session
                    .connection
                    .scalar(dialect.unlock, dialect.advisory(&key));
                let freed = unlock.await;
                (freed.map(|freed| freed == Some(1)), session)
            }
        };
        let is_freed = freed.map_err(failure)?;
        session.give_back();
        match is_freed {
            true => Ok(()),
            false => Err(Failure::new(
                LOST,
                "somebody else has freed it or taken it over",
            )),
        }
    }
}

/// A number that every process makes of a name: FNV-1a.
fn number_of(name: &str) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed()
}

struct ServerProbe {
    dialect: &'static Dialect,
    counted: tokio::sync::Mutex<Counted>,
}

struct Counted {
    connection: Connection,
    /// Statements of its own that the server has counted.
    own: u64,
}

impl ServerProbe {
    async fn rows(&self, text: &'static str) -> Result<(Vec<(String, String)>, u64), sqlx::Error> {
        let mut counted = self.counted.lock().await;
        let rows = counted.connection.rows(text).await?;
        counted.own += 1;
        let before = counted.own - u64::from(!self.dialect.counts_itself);
        Ok((rows, before))
    }
}

#[async_trait]
impl Probe for ServerProbe {
    async fn ping(&self) -> Result<(), Failure> {
        // A command of the protocol or an empty query, which is no statement.
        self.counted
            .lock()
            .await
            .connection
            .ping()
            .await
            .map_err(failure)
    }

    /// None unless the server counts, and this user may read it.
    async fn commands(&self) -> Result<Option<u64>, Failure> {
        match self.rows(self.dialect.count).await {
            Ok((rows, own)) => {
                let counted = rows
                    .first()
                    .and_then(|(_, count)| count.parse::<u64>().ok());
                Ok(counted.map(|counted| counted.saturating_sub(own)))
            }
            Err(sqlx::Error::Database(_)) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    }

    async fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        let (rows, _) = self.rows(self.dialect.settings).await.map_err(failure)?;
        let mut facts: BTreeMap<_, _> = rows.into_iter().collect();
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

impl fmt::Debug for ServerProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerProbe").finish_non_exhaustive()
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
