use sqlx::mysql::{
    MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions, MySqlSslMode,
};
use sqlx::{ConnectOptions as _, Connection as _};

use super::{Means, OWNER};
use crate::locks::Mode;

pub(super) const TABLE: &str = "
CREATE TABLE bare (
    name VARBINARY(255) PRIMARY KEY, owner VARBINARY(16), token BIGINT NOT NULL DEFAULT 0,
    expires_at DATETIME(6) NOT NULL DEFAULT '1970-01-01'
) ENGINE = InnoDB;
INSERT INTO bare (name) SELECT CONCAT('lock:', seq) FROM seq_0_to_63;";

const TAKE: &str = "
UPDATE bare SET owner = ?, token = LAST_INSERT_ID(token + 1),
    expires_at = NOW(6) + INTERVAL 30 SECOND
WHERE name = ? AND (owner IS NULL OR expires_at <= NOW(6))";

const RELEASE: &str = "UPDATE bare SET owner = NULL WHERE name = ? AND owner = ?";

const LOCK: &str = "SELECT token FROM bare WHERE name = ? FOR UPDATE";

pub(crate) enum Client {
    Connection(Box<MySqlConnection>),
    Pool(MySqlPool),
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
        let options: MySqlConnectOptions = url.parse().unwrap();
        let options = options
            .ssl_mode(MySqlSslMode::Disabled)
            .disable_statement_logging();
        match means {
            Means::Connection => Self::Connection(Box::new(options.connect().await.unwrap())),
            Means::Pool(size) => {
                let pool = MySqlPoolOptions::new()
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
        let name = format!("lock:{key}");
        match mode {
            Mode::Lease => self.lease(&name, between).await,
            Mode::Row => self.row(&name, between).await,
            Mode::Advisory => self.advisory(&name, between).await,
        }
    }

    async fn lease(&mut self, name: &str, between: impl AsyncFnOnce()) {
        let take = sqlx::query(TAKE).bind(OWNER).bind(name);
        let done = on!(self, executor => take.execute(executor).await.unwrap());
        assert!(done.last_insert_id() > 0);
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

    async fn advisory(&mut self, name: &str, between: impl AsyncFnOnce()) {
        let Self::Connection(connection) = self else {
            panic!("a session has a connection");
        };
        let lock = sqlx::query_scalar::<_, i64>("SELECT GET_LOCK(?, 10)").bind(name);
        assert_eq!(lock.fetch_one(&mut **connection).await.unwrap(), 1);
        between().await;
        let unlock = sqlx::query_scalar::<_, i64>("SELECT RELEASE_LOCK(?)").bind(name);
        assert_eq!(unlock.fetch_one(&mut **connection).await.unwrap(), 1);
    }

    pub(super) async fn select_one(&mut self) {
        let one = sqlx::query_scalar::<_, i64>("SELECT 1");
        let one = on!(self, executor => one.fetch_one(executor).await.unwrap());
        assert_eq!(one, 1);
    }
}
