use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError};
use sqlx::{AssertSqlSafe, query, query_scalar, raw_sql};
use tokio::time::timeout;

use super::super::pool::{Lent, Pool};
use super::super::sql::{Mode, Place, failure, number_of, quoted};
use super::super::unique::unique;
use super::super::until::until;
use super::connect;
use crate::subject::{Failure, LOST, Subject};

/// What a lock takes at least. A future that is dropped closes its connection, and leaves a lease for
/// a ttl.
#[derive(Clone, Debug)]
pub(super) struct Least {
    mode: Mode,
    options: Arc<MySqlConnectOptions>,
    pool: Pool<MySqlConnection>,
    database: Arc<str>,
    texts: Arc<Texts>,
}

#[derive(Debug)]
struct Texts {
    seed: Arc<str>,
    take: Arc<str>,
    free: Arc<str>,
    table: String,
}

#[derive(Clone)]
pub(super) struct Key {
    name: Arc<str>,
    /// As SQL has it.
    literal: Arc<str>,
    /// Of all databases of the server, and at most 64 characters.
    advisory: Arc<str>,
    /// To make it would wait for whoever has it locked.
    has_row: Arc<AtomicBool>,
}

pub(super) enum Held {
    Lease {
        key: Key,
        owner: String,
        token: u64,
    },
    /// Of a session: the row in its transaction, or the advisory lock.
    Session {
        key: Key,
        session: Lent<MySqlConnection>,
    },
}

impl Least {
    /// Makes the table of the run, where there is none; none without the leave to make it.
    pub(super) async fn open(
        place: &Place,
        options: MySqlConnectOptions,
        run: u64,
    ) -> Result<Option<Self>, Failure> {
        let table = place.table(run);
        if place.has_table() {
            if place.is_closed {
                return Ok(None);
            }
            let mut connection = connect(&options).await?;
            let make = format!("CREATE TABLE IF NOT EXISTS {table} {COLUMNS}");
            let made = raw_sql(AssertSqlSafe(make)).execute(&mut connection).await;
            made.map_err(failure)?;
        }
        Ok(Some(Self {
            mode: place.mode,
            options: Arc::new(options),
            pool: Pool::new(place.connections),
            database: place.database.as_str().into(),
            texts: Arc::new(Texts::of(table)),
        }))
    }

    async fn session(&self) -> Result<Lent<MySqlConnection>, Failure> {
        self.pool.lend(|| connect(&self.options)).await
    }

    async fn seed(&self, key: &Key) -> Result<(), Failure> {
        if key.has_row.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut session = self.session().await?;
        let seed = query(AssertSqlSafe(Arc::clone(&self.texts.seed))).bind(&*key.name);
        seed.execute(session.get()).await.map_err(failure)?;
        session.give_back();
        key.has_row.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn lease(&self, key: &Key, ttl: Duration) -> Result<Option<Held>, Failure> {
        let owner = unique();
        let micros = i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
        let mut session = self.session().await?;
        let take = query(AssertSqlSafe(Arc::clone(&self.texts.take)));
        let take = take.bind(&owner).bind(micros).bind(&*key.name);
        let done = take.execute(session.get()).await.map_err(failure)?;
        session.give_back();
        let is_taken = done.rows_affected() > 0;
        Ok(is_taken.then(|| Held::Lease {
            key: key.clone(),
            owner,
            token: done.last_insert_id(),
        }))
    }

    async fn row(&self, key: &Key, how: &str) -> Result<Option<Held>, Failure> {
        let mut session = self.session().await?;
        let text = format!(
            "BEGIN; SELECT token FROM {} WHERE name = {} FOR UPDATE{how}",
            self.texts.table, key.literal
        );
        let rows = raw_sql(AssertSqlSafe(text)).fetch_all(session.get()).await;
        let is_taken = match rows {
            Ok(rows) => !rows.is_empty(),
            Err(error) if is_locked(&error) => {
                key.has_row.store(true, Ordering::Relaxed);
                false
            }
            Err(error) => return Err(failure(error)),
        };
        let key = key.clone();
        if is_taken {
            return Ok(Some(Held::Session { key, session }));
        }
        let rolled_back = raw_sql("ROLLBACK").execute(session.get()).await;
        rolled_back.map_err(failure)?;
        session.give_back();
        Ok(None)
    }

    async fn advisory(&self, key: &Key, seconds: i64) -> Result<Option<Held>, Failure> {
        let mut session = self.session().await?;
        let lock = query_scalar::<_, Option<i64>>("SELECT GET_LOCK(?, ?)");
        let lock = lock.bind(&*key.advisory).bind(seconds);
        let is_taken = lock.fetch_one(session.get()).await.map_err(failure)?;
        let key = key.clone();
        if is_taken == Some(1) {
            return Ok(Some(Held::Session { key, session }));
        }
        session.give_back();
        Ok(None)
    }

    /// Has the server wait, in its order.
    async fn wait(&self, key: &Key) -> Result<Option<Held>, Failure> {
        loop {
            let held = match self.mode {
                Mode::Advisory => self.advisory(key, MOST_SECONDS).await?,
                Mode::Lease | Mode::Row => self.row(key, "").await?,
            };
            if held.is_some() {
                return Ok(held);
            }
            // A lock that is new has no row.
            if self.mode == Mode::Row {
                self.seed(key).await?;
            }
        }
    }

    async fn attempt(&self, key: &Key, ttl: Duration) -> Result<Option<Held>, Failure> {
        match self.mode {
            Mode::Advisory => self.advisory(key, 0).await,
            Mode::Lease => self.lease(key, ttl).await,
            Mode::Row => self.row(key, " NOWAIT").await,
        }
    }
}

impl Texts {
    fn of(table: String) -> Self {
        Self {
            seed: format!("INSERT IGNORE INTO {table} (name) VALUES (?)").into(),
            take: format!(
                "UPDATE {table} SET owner = ?, token = LAST_INSERT_ID(token + 1),
                     expires_at = NOW(6) + INTERVAL ? MICROSECOND
                 WHERE name = ? AND (owner IS NULL OR expires_at <= NOW(6))"
            )
            .into(),
            free: format!("UPDATE {table} SET owner = NULL WHERE name = ? AND owner = ?").into(),
            table,
        }
    }
}

impl Subject for Least {
    type Key = Key;
    type Held = Held;

    fn key(&self, name: &str) -> Result<Key, Failure> {
        Ok(Key {
            name: name.into(),
            literal: quoted(name)?.into(),
            has_row: Arc::default(),
            advisory: {
                let number = number_of(&format!("{}/{name}", self.database));
                format!("lock-bench:{number:016x}").into()
            },
        })
    }

    async fn acquire(
        &self,
        key: &Key,
        ttl: Duration,
        wait: Option<Duration>,
    ) -> Result<Option<Held>, Failure> {
        if self.mode != Mode::Lease && wait != Some(Duration::ZERO) {
            let taken = self.wait(key);
            return match wait {
                None => taken.await,
                // The connection is closed, and with it ends its place in the queue.
                Some(wait) => timeout(wait, taken).await.unwrap_or(Ok(None)),
            };
        }
        let held = self.attempt(key, ttl).await?;
        // A lock that is new has no row.
        if held.is_none() && self.mode != Mode::Advisory {
            self.seed(key).await?;
        }
        match held {
            None => until(wait, || self.attempt(key, ttl)).await,
            held => Ok(held),
        }
    }

    fn token(held: &Held) -> Option<u64> {
        match held {
            Held::Lease { token, .. } => Some(*token),
            Held::Session { .. } => None,
        }
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        let is_freed = match held {
            Held::Lease { key, owner, .. } => {
                let mut session = self.session().await?;
                let free = query(AssertSqlSafe(Arc::clone(&self.texts.free)));
                let free = free.bind(&*key.name).bind(owner);
                let done = free.execute(session.get()).await.map_err(failure)?;
                session.give_back();
                done.rows_affected() == 1
            }
            Held::Session { key, mut session } => {
                let is_freed = match self.mode {
                    Mode::Advisory => {
                        let unlock = query_scalar::<_, Option<i64>>("SELECT RELEASE_LOCK(?)");
                        let unlock = unlock.bind(&*key.advisory).fetch_one(session.get());
                        unlock.await.map_err(failure)? == Some(1)
                    }
                    Mode::Lease | Mode::Row => {
                        let committed = raw_sql("COMMIT").execute(session.get()).await;
                        committed.map_err(failure)?;
                        true
                    }
                };
                session.give_back();
                is_freed
            }
        };
        match is_freed {
            true => Ok(()),
            false => Err(Failure::new(
                LOST,
                "somebody else has freed it or taken it over",
            )),
        }
    }
}

/// Whether somebody else has the row: each server has a code of its own.
fn is_locked(error: &sqlx::Error) -> bool {
    let known = match error {
        sqlx::Error::Database(error) => error.try_downcast_ref::<MySqlDatabaseError>(),
        _ => None,
    };
    known.is_some_and(|error| [1205, 3572].contains(&error.number()))
}

/// Whose connection is closed meanwhile is in the queue until then.
const MOST_SECONDS: i64 = 10;

const COLUMNS: &str = "(
    name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
    owner VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin,
    token BIGINT NOT NULL DEFAULT 0, expires_at DATETIME(6) NOT NULL DEFAULT '1970-01-01'
) ENGINE = InnoDB";
