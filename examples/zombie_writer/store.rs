//! What both holders write to.

use std::path::Path;

use lock_sql::transaction::{Fence, WriteError};
use polylock::FencingToken;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, SqliteConnection};
use sqlx::{query_scalar, raw_sql};

use crate::{KEY, PATIENCE, Result};

/// Two pages in a SQLite file.
pub(crate) struct Store(SqliteConnection);

impl Store {
    pub(crate) async fn open(file: &Path) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .busy_timeout(PATIENCE);
        let mut connection = options.connect().await?;
        let pages = "CREATE TABLE IF NOT EXISTS page (name TEXT PRIMARY KEY, text TEXT NOT NULL);
                     INSERT OR IGNORE INTO page VALUES ('plain', ''), ('fenced', '')";
        raw_sql(pages).execute(&mut connection).await?;
        Ok(Self(connection))
    }

    /// Whoever writes last wins.
    pub(crate) async fn write(&mut self, text: &str) -> Result<(), sqlx::Error> {
        let update = format!("UPDATE page SET text = '{text}' WHERE name = 'plain'");
        let update = raw_sql(AssertSqlSafe(update));
        update.execute(&mut self.0).await.map(drop)
    }

    /// Whoever had the lock last wins.
    pub(crate) async fn write_if_newer(
        &mut self,
        token: FencingToken,
        text: &str,
    ) -> Result<u64, WriteError> {
        let update = format!("UPDATE page SET text = '{text}' WHERE name = 'fenced'");
        let update = raw_sql(AssertSqlSafe(update));
        let begin = self.0.begin_with("BEGIN IMMEDIATE").await;
        let mut tx = begin.map_err(WriteError::Sql)?;
        let fence = Fence::new();
        let write = fence.write_if_newer(&mut *tx, KEY, token, update);
        // Refused, the transaction is dropped and rolled back.
        let rows = write.await?;
        tx.commit().await.map_err(WriteError::Sql)?;
        Ok(rows)
    }

    pub(crate) async fn read(&mut self, page: &str) -> Result<String> {
        let text = query_scalar("SELECT text FROM page WHERE name = ?").bind(page);
        Ok(text.fetch_one(&mut self.0).await?)
    }
}
