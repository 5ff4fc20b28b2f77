use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, query, query_scalar, raw_sql};
use tokio::time::timeout;

use super::super::pool::{Lent, Pool};
use super::super::sql::{Mode, Place, failure, number_of, quoted};
use super::super::unique::unique;
use super::super::until::until;
use super::{connect, table};
use crate::subject::{Failure, LOST, Subject};

/// What a lock takes at least. A future that is dropped closes its connection, and leaves a lease for
/// a ttl.
#[derive(Clone, Debug)]
pub(super) struct Least {
    mode: Mode,
    texts: Arc<Texts>,
    options: Arc<PgConnectOptions>,
    pool: Pool<PgConnection>,
}

#[derive(Debug)]
struct Texts {
    seed: Arc<str>,
    take: Arc<str>,
    free: Arc<str>,
    /// Prepares what locks a row, waiting for it or not.
    prepare: Arc<str>,
}

#[derive(Clone)]
pub(super) struct Key {
    name: Arc<str>,
    /// As SQL has it.
    literal: Arc<str>,
    number: i64,
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
        session: Lent<PgConnection>,
    },
}

impl Least {
    /// Makes the table of the run, where there is none; none without the leave to make it.
    pub(super) async fn open(
        place: &Place,
        options: PgConnectOptions,
        run: u64,
    ) -> Result<Option<Self>, Failure> {
        let table = table(place, run);
        if place.has_table() {
            if place.is_closed {
                return Ok(None);
            }
            let mut connection = connect(&options).await?;
            // Those who make it at the same time would hinder each other.
            let make = format!(
                "BEGIN; SELECT pg_advisory_xact_lock({}); CREATE TABLE IF NOT EXISTS {table} (
                    name text PRIMARY KEY, owner text, token bigint NOT NULL DEFAULT 0,
                    expires_at timestamptz NOT NULL DEFAULT 'epoch') WITH (fillfactor = 70); COMMIT",
                number_of("polylock_bench")
            );
            let made = raw_sql(AssertSqlSafe(make)).execute(&mut connection).await;
            made.map_err(failure)?;
        }
        Ok(Some(Self {
            mode: place.mode,
            texts: Arc::new(Texts::of(&table)),
            options: Arc::new(options),
            pool: Pool::new(place.connections),
        }))
    }

    async fn session(&self) -> Result<Lent<PgConnection>, Failure> {
        let connect = || async {
            let mut connection = connect(&self.options).await?;
            if self.mode == Mode::Row {
                let prepare = raw_sql(AssertSqlSafe(Arc::clone(&self.texts.prepare)));
                prepare.execute(&mut connection).await.map_err(failure)?;
            }
            Ok(connection)
        };
        self.pool.lend(connect).await
    }

    async fn seed(&self, key: &Key) -> Result<(), Failure> {
        let mut session = self.session().await?;
        let seed = query(AssertSqlSafe(Arc::clone(&self.texts.seed))).bind(&*key.name);
        seed.execute(session.get()).await.map_err(failure)?;
        session.give_back();
        Ok(())
    }

    async fn lease(&self, key: &Key, ttl: Duration) -> Result<Option<Held>, Failure> {
        let owner = unique();
        let millis = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let mut session = self.session().await?;
        let take = query_scalar::<_, i64>(AssertSqlSafe(Arc::clone(&self.texts.take)));
        let take = take.bind(&*key.name).bind(&owner).bind(millis);
        let token = take.fetch_optional(session.get()).await.map_err(failure)?;
        session.give_back();
        Ok(token.map(|token| Held::Lease {
            key: key.clone(),
            owner,
            token: u64::try_from(token).unwrap_or_default(),
        }))
    }

    /// No row is either none at all, or one that somebody else has, which is skipped.
    async fn row(&self, key: &Key, how: &str) -> Result<Option<Held>, Failure> {
        let mut session = self.session().await?;
        let text = format!("BEGIN; EXECUTE lock_bench_{how}({})", key.literal);
        let rows = raw_sql(AssertSqlSafe(text)).fetch_all(session.get()).await;
        let key = key.clone();
        if !rows.map_err(failure)?.is_empty() {
            return Ok(Some(Held::Session { key, session }));
        }
        let rolled_back = raw_sql("ROLLBACK").execute(session.get()).await;
        rolled_back.map_err(failure)?;
        session.give_back();
        Ok(None)
    }

    async fn advisory(&self, key: &Key, how: &'static str) -> Result<Option<Held>, Failure> {
        let mut session = self.session().await?;
        let lock = query_scalar::<_, bool>(how).bind(key.number);
        let is_taken = lock.fetch_one(session.get()).await.map_err(failure)?;
        let key = key.clone();
        if is_taken {
            return Ok(Some(Held::Session { key, session }));
        }
        session.give_back();
        Ok(None)
    }

    /// Has the server wait, in its order.
    async fn wait(&self, key: &Key) -> Result<Option<Held>, Failure> {
        loop {
            let held = match self.mode {
                Mode::Advisory => self.advisory(key, WAIT).await?,
                Mode::Lease | Mode::Row => self.row(key, "wait").await?,
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
            Mode::Advisory => self.advisory(key, "SELECT pg_try_advisory_lock($1)").await,
            Mode::Lease => self.lease(key, ttl).await,
            Mode::Row => self.row(key, "try").await,
        }
    }
}

impl Texts {
    fn of(table: &str) -> Self {
        let select = format!("SELECT token FROM {table} WHERE name = $1 FOR UPDATE");
        Self {
            seed: format!("INSERT INTO {table} (name) VALUES ($1) ON CONFLICT DO NOTHING").into(),
            take: format!(
                "UPDATE {table} SET owner = $2, token = token + 1,
                     expires_at = now() + $3 * interval '1 millisecond'
                 WHERE name = $1 AND (owner IS NULL OR expires_at <= now()) RETURNING token"
            )
            .into(),
            free: format!("UPDATE {table} SET owner = NULL WHERE name = $1 AND owner = $2").into(),
            prepare: format!(
                "PREPARE lock_bench_wait (text) AS {select};
                 PREPARE lock_bench_try (text) AS {select} SKIP LOCKED"
            )
            .into(),
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
            number: number_of(name),
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
                        let unlock = query_scalar("SELECT pg_advisory_unlock($1)").bind(key.number);
                        unlock.fetch_one(session.get()).await.map_err(failure)?
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

const WAIT: &str = "SELECT true FROM pg_advisory_lock($1)";
