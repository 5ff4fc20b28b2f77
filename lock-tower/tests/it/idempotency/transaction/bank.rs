//! Charges, in one database each.

use http::Response;
use lock_testkit::servers::{MariaDbServer, PostgresServer};
use polylock_tower::idempotency::{PendingResponse, Put, ResponseStore as _, SqlResponses};
use tempfile::TempDir;
use tokio::sync::Barrier;

use super::{Bytes, TIME, Then};

pub(super) trait Bank: Clone + Send + Sync + 'static {
    fn open(url: &str) -> impl Future<Output = Self> + Send;

    /// Charges and stores the response in one transaction, which is open when `meet` is.
    fn charge(
        &self,
        responses: &SqlResponses,
        pending: &PendingResponse,
        response: &Response<Bytes>,
        meet: &Barrier,
        then: Then,
    ) -> impl Future<Output = Put> + Send;

    fn charges(&self) -> impl Future<Output = i64> + Send;
}

macro_rules! banks {
    ($($bank:ident, $database:ident, begin: $begin:literal, waits_before: $waits_before:literal;)*)
    => { $(
        #[derive(Clone)]
        pub(super) struct $bank(sqlx::Pool<sqlx::$database>);

        impl Bank for $bank {
            async fn open(url: &str) -> Self {
                let pool = sqlx::Pool::connect(url).await.expect("it runs");
                let table = sqlx::query("CREATE TABLE charges (cents BIGINT)");
                table.execute(&pool).await.expect("it is new");
                Self(pool)
            }

            async fn charge(
                &self,
                responses: &SqlResponses,
                pending: &PendingResponse,
                response: &Response<Bytes>,
                meet: &Barrier,
                then: Then,
            ) -> Put {
                if $waits_before {
                    meet.wait().await;
                }
                let mut tx = self.0.begin_with($begin).await.expect("it runs");
                // From here on, plain reads of MariaDB see the data of this moment.
                let read = sqlx::query("SELECT cents FROM charges");
                read.fetch_all(&mut *tx).await.expect("it can be read");
                if !$waits_before {
                    meet.wait().await;
                }
                let charge = sqlx::query("INSERT INTO charges VALUES (1000)");
                charge.execute(&mut *tx).await.expect("it can be written");
                let put = responses.put_in(&mut *tx, pending, response).await.expect("it works");
                let look = tokio::time::timeout(TIME, responses.get(&pending.key)).await;
                let seen = look.expect("a lookup does not wait for it").expect("it works");
                match (put, then) {
                    (Put::Stored, _) => assert_eq!(seen, None),
                    _ => assert!(seen.is_some()),
                }
                match (put, then) {
                    (Put::Stored, Then::Commit | Then::CommitAgain) => {
                        tx.commit().await.expect("it works");
                    }
                    _ => tx.rollback().await.expect("it works"),
                }
                put
            }

            async fn charges(&self) -> i64 {
                let count = sqlx::query_scalar("SELECT COUNT(*) FROM charges");
                count.fetch_one(&self.0).await.expect("it can be read")
            }
        }
    )* };
}

banks! {
    SqliteBank, Sqlite, begin: "BEGIN IMMEDIATE", waits_before: true;
    PostgresBank, Postgres, begin: "BEGIN", waits_before: false;
    MariaDbBank, MySql, begin: "START TRANSACTION", waits_before: false;
}

/// The URL of a new database, and what it lives in.
pub(super) fn sqlite() -> (String, Option<TempDir>) {
    let directory = tempfile::tempdir().expect("it works");
    let file = directory.path().join("bank.db");
    (format!("sqlite:{}", file.display()), Some(directory))
}

pub(super) fn postgres() -> (String, Option<TempDir>) {
    (PostgresServer::shared().database(), None)
}

pub(super) fn mariadb() -> (String, Option<TempDir>) {
    (MariaDbServer::shared().database(), None)
}
