use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _};

use super::{Means, OWNER};
use crate::locks::Mode;

pub(super) const TABLE: &str = "
CREATE TABLE bare (
    name text PRIMARY KEY, owner bytea, token bigint NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL DEFAULT 'epoch'
) WITH (fillfactor = 70);
INSERT INTO bare (name) SELECT 'lock:' || n FROM generate_series(0, 63) n;
GRANT ALL ON bare TO test;";

const TAKE: &str = "
UPDATE bare SET owner = $2, token = token + 1, expires_at = now() + interval '30 s'
WHERE name = $1 AND (owner IS NULL OR expires_at <= now()) RETURNING token";

const RELEASE: &str = "UPDATE bare SET owner = NULL WHERE name = $1 AND owner = $2";

const LOCK: &str = "SELECT token FROM bare WHERE name = $1 FOR UPDATE";

pub(crate) enum Client {
    Connection(Box<PgConnection>),
    Pool(PgPool),
}

/// Runs with either; both are executors, of different types.
macro_rules! on {
    ($client:expr, $executor:ident => $run:expr) => {
        match $client {
            Client::Connection(connection) => {
                let $executor = &mut **connection;
                $run
            }
            Client::Pool(pool) => {
                let $executor = &*pool;
                $run
            }
        }
    };
}

impl Client {
    pub(super) async fn open(url: &str, means: Means) -> Self {
        let options: PgConnectOptions = url.parse().unwrap();
        let options = options
            .ssl_mode(PgSslMode::Disable)
            .disable_statement_logging();
        match means {
            Means::Connection => Self::Connection(Box::new(options.connect().await.unwrap())),
            Means::Pool(size) => {
                let pool = PgPoolOptions::new()
                    .max_connections(size)
                    .test_before_acquire(false);
                Self::Pool(pool.connect_with(options).await.unwrap())
            }
        }
    }

    pub(super) fn another(&self) -> Self {
        match self {
            Self::Connection(_) => panic!("there is only one"),
            Self::Pool(pool) => Self::Pool(pool.clone()),
        }
    }

    pub(super) async fn pair(&mut self, mode: Mode, key: u32, between: impl AsyncFnOnce()) {
        match mode {
            Mode::Lease => self.lease(&format!("lock:{key}"), between).await,
            Mode::Row => self.row(&format!("lock:{key}"), between).await,
            Mode::Advisory => self.advisory(i64::from(key), between).await,
        }
    }

    async fn lease(&mut self, name: &str, between: impl AsyncFnOnce()) {
        let take = sqlx::query_scalar::<_, i64>(TAKE).bind(name).bind(OWNER);
        let token = on!(self, executor => take.fetch_one(executor).await.unwrap());
        assert!(token > 0);
        between().await;
        let release = sqlx::query(RELEASE).bind(name).bind(OWNER);
        let done = on!(self, executor => release.execute(executor).await.unwrap());
        assert_eq!(done.rows_affected(), 1);
    }

    async fn row(&mut self, name: &str, between: impl AsyncFnOnce()) {
        let Self::Connection(connection) = self else {
            panic!("a transaction has a connection");
        };
        let mut transaction = connection.begin().await.unwrap();
        let lock = sqlx::query_scalar::<_, i64>(LOCK).bind(name);
        let token = lock.fetch_one(&mut *transaction).await.unwrap();
        assert!(token >= 0);
        between().await;
        transaction.commit().await.unwrap();
    }

    async fn advisory(&mut self, number: i64, between: impl AsyncFnOnce()) {
        let Self::Connection(connection) = self else {
            panic!("a session has a connection");
        };
        let lock = sqlx::query("SELECT pg_advisory_lock($1)").bind(number);
        lock.execute(&mut **connection).await.unwrap();
        between().await;
        let unlock = sqlx::query_scalar("SELECT pg_advisory_unlock($1)").bind(number);
        let unlocked: bool = unlock.fetch_one(&mut **connection).await.unwrap();
        assert!(unlocked);
    }

    pub(super) async fn select_one(&mut self) {
        let one = sqlx::query_scalar::<_, i32>("SELECT 1");
        let one = on!(self, executor => one.fetch_one(executor).await.unwrap());
        assert_eq!(one, 1);
    }
}
