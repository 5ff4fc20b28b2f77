use sqlx::{Row as _, SqlStr};

use super::dialect::SqlDialect;

/// A connection of sqlx: `SqliteConnection`, `PgConnection` and `MySqlConnection`, as `&mut *tx`
/// gives it of a `Transaction`.
///
/// Sealed: there are no others.
pub trait SqlConnection: Dialog {}

/// A response as it lies in the table.
#[derive(Debug)]
#[expect(unnameable_types, reason = "nobody else reads it")]
pub struct Record<B> {
    pub(super) run: B,
    pub(super) token: Option<i64>,
    pub(super) fingerprint: B,
    pub(super) status: i64,
    pub(super) fields: B,
    pub(super) body: Option<B>,
}

/// The statements, with what goes in and out.
#[expect(unnameable_types, reason = "nobody else implements it")]
pub trait Dialog: Send {
    const DIALECT: SqlDialect;

    fn find(
        &mut self,
        sql: SqlStr,
        key: &[u8],
    ) -> impl Future<Output = sqlx::Result<Option<Record<Vec<u8>>>>> + Send;

    /// Returns whether there was none.
    fn insert(
        &mut self,
        sql: SqlStr,
        key: &[u8],
        record: &Record<&[u8]>,
        retention: i64,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Returns whether there was one.
    fn delete(
        &mut self,
        sql: SqlStr,
        key: Option<&[u8]>,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    fn run(&mut self, sql: SqlStr) -> impl Future<Output = sqlx::Result<()>> + Send;
}

macro_rules! connections {
    ($($feature:literal: $database:ident, $status:ty, $connection:ty;)*) => { $(
        #[cfg(feature = $feature)]
        impl SqlConnection for $connection {}

        #[cfg(feature = $feature)]
        impl Dialog for $connection {
            const DIALECT: SqlDialect = SqlDialect::$database;

            async fn find(
                &mut self,
                sql: SqlStr,
                key: &[u8],
            ) -> sqlx::Result<Option<Record<Vec<u8>>>> {
                let found = sqlx::query(sql).bind(key).fetch_optional(self).await?;
                let read = |row: <sqlx::$database as sqlx::Database>::Row| {
                    Ok(Record {
                        run: row.try_get(0)?,
                        token: row.try_get(1)?,
                        fingerprint: row.try_get(2)?,
                        status: i64::from(row.try_get::<$status, _>(3)?),
                        fields: row.try_get(4)?,
                        body: row.try_get(5)?,
                    })
                };
                found.map(read).transpose()
            }

            async fn insert(
                &mut self,
                sql: SqlStr,
                key: &[u8],
                record: &Record<&[u8]>,
                retention: i64,
            ) -> sqlx::Result<bool> {
                let inserted = sqlx::query(sql)
                    .bind(key)
                    .bind(record.run)
                    .bind(record.token)
                    .bind(record.fingerprint)
                    .bind(record.status)
                    .bind(record.fields)
                    .bind(record.body)
                    .bind(retention)
                    .execute(self)
                    .await;
                match inserted {
                    Ok(inserted) => Ok(inserted.rows_affected() > 0),
                    Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
                    Err(error) => Err(error),
                }
            }

            async fn delete(&mut self, sql: SqlStr, key: Option<&[u8]>) -> sqlx::Result<bool> {
                let mut query = sqlx::query(sql);
                if let Some(key) = key {
                    query = query.bind(key);
                }
                Ok(query.execute(self).await?.rows_affected() > 0)
            }

            async fn run(&mut self, sql: SqlStr) -> sqlx::Result<()> {
                sqlx::Executor::execute(self, sqlx::raw_sql(sql)).await.map(drop)
            }
        }
    )* };
}

connections! {
    "mysql": MySql, i16, sqlx::MySqlConnection;
    "postgres": Postgres, i16, sqlx::PgConnection;
    "sqlite": Sqlite, i64, sqlx::SqliteConnection;
}
