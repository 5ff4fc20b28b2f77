//! Envelopes and shares in SQLite.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Executor as _, SqlitePool};

use crate::Result;

/// What is in an envelope.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Left {
    pub(crate) cents: i64,
    pub(crate) shares: i64,
}

#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) pool: SqlitePool,
}

impl Table {
    pub(crate) async fn open(file: &Path) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // Nothing has to survive a power cut.
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(Duration::from_secs(30));
        let pool = SqlitePoolOptions::new().connect_with(options).await?;
        pool.execute(
            "CREATE TABLE envelopes (name TEXT PRIMARY KEY, cents INTEGER, shares INTEGER);
             CREATE TABLE shares (envelope TEXT, grabber INTEGER, cents INTEGER)",
        )
        .await?;
        Ok(Self { pool })
    }

    pub(crate) async fn put(&self, envelope: &str, cents: u32, shares: u32) -> Result<()> {
        let put = sqlx::query("INSERT INTO envelopes VALUES (?, ?, ?)").bind(envelope);
        put.bind(cents).bind(shares).execute(&self.pool).await?;
        Ok(())
    }

    pub(crate) async fn look(&self, envelope: &str) -> Result<Left> {
        let look = sqlx::query_as("SELECT cents, shares FROM envelopes WHERE name = ?");
        let (cents, shares) = look.bind(envelope).fetch_one(&self.pool).await?;
        Ok(Left { cents, shares })
    }

    pub(crate) async fn share_of(&self, envelope: &str, grabber: u32) -> Result<Option<i64>> {
        let sql = "SELECT cents FROM shares WHERE envelope = ? AND grabber = ?";
        let share = sqlx::query_scalar(sql).bind(envelope).bind(grabber);
        Ok(share.fetch_optional(&self.pool).await?)
    }

    /// One transaction: it cannot be interrupted, and is too late all the same.
    pub(crate) async fn give(
        &self,
        envelope: &str,
        grabber: u32,
        cents: i64,
        rest: Left,
    ) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        sqlx::query("UPDATE envelopes SET cents = ?, shares = ? WHERE name = ?")
            .bind(rest.cents)
            .bind(rest.shares)
            .bind(envelope)
            .execute(&mut *tx)
            .await?;
        sqlx::query("INSERT INTO shares VALUES (?, ?, ?)")
            .bind(envelope)
            .bind(grabber)
            .bind(cents)
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    pub(crate) async fn paid(&self, envelope: &str) -> Result<Vec<(u32, i64)>> {
        let sql = "SELECT grabber, cents FROM shares WHERE envelope = ?";
        let paid = sqlx::query_as(sql).bind(envelope);
        Ok(paid.fetch_all(&self.pool).await?)
    }
}
