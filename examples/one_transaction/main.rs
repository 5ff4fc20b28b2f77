//! A flash sale: forty buyers, eight at a time, want one of 25 lamps, and each is served in one
//! transaction that has the lock of the lamp.
//!
//! The lock is a row of the same database and goes with the transaction: it cannot be lost while
//! the transaction can still commit, and a commit gives it back.
//!
//! ```console
//! $ cargo run -p polylock-examples --example one_transaction
//! $ cargo run -p polylock-examples --example one_transaction -- \
//!     --backend postgres://me:secret@localhost/sale
//! ```
//!
//! The database is a SQLite file in a temporary directory unless `--backend` names another file or
//! an empty database of PostgreSQL. Exits with 0 if exactly 25 were sold, each with a token of its
//! own, and a shop assistant with an old token could not write.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use lock_core::fencing::StaleToken;
use lock_core::{FencingToken, LockUrl};
use lock_sql::Schema;
use lock_sql::transaction::{Connection, Fence, TransactionLocks, WriteError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _};
use sqlx::{SqliteConnection, raw_sql};
use tokio::task::JoinSet;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const LAMPS: i64 = 25;
const BUYERS: i64 = 40;
const COUNTERS: i64 = 8;

/// Sells in transactions that have the lock.
#[derive(Parser)]
struct Options {
    /// The database, which has the locks as well: `sqlite:FILE` or `postgres://...`.
    #[arg(long, value_name = "URL")]
    backend: Option<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = format!("sqlite:{}", directory.path().join("sale.db").display());
    let backend = Options::parse().backend.unwrap_or(file);
    let sold = sale_at(&backend).await?;
    writeln!(io::stdout().lock(), "{sold}")?;
    Ok(())
}

async fn sale_at(backend: &str) -> Result<String> {
    let url = LockUrl::parse(backend)?;
    match url.scheme() {
        "sqlite" => sale::<OnSqlite>(sqlite(url.expect_file()?).await?).await,
        "postgres" | "postgresql" => sale::<OnPostgres>(postgres(backend).await?).await,
        other => Err(format!("no transaction of {other} has locks in this example").into()),
    }
}

/// Serves all buyers at counters that have a connection each, and looks at the books.
async fn sale<S: Shop>(mut counters: Vec<Counter<S>>) -> Result<String> {
    let shop = "CREATE TABLE stock (lamps BIGINT NOT NULL);
                CREATE TABLE orders (buyer BIGINT NOT NULL, token BIGINT NOT NULL);
                CREATE TABLE price (cents BIGINT NOT NULL);
                INSERT INTO price VALUES (9900)";
    counters[0].run(raw_sql(shop)).await?;
    let stock = format!("INSERT INTO stock VALUES ({LAMPS})");
    counters[0].run(raw_sql(AssertSqlSafe(stock))).await?;

    let mut open = JoinSet::new();
    for (first, mut counter) in (0..).zip(counters) {
        open.spawn(async move {
            for buyer in (first..BUYERS).step_by(COUNTERS as usize) {
                serve::<S>(&mut counter, buyer).await?;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(counter)
        });
    }
    let closed = open
        .join_all()
        .await
        .into_iter()
        .collect::<Result<Vec<_>>>();
    let mut counter = closed?.pop().ok_or("no counter is left")?;

    let sold = S::number(&mut counter, "SELECT COUNT(*) FROM orders").await?;
    let left = S::number(&mut counter, "SELECT lamps FROM stock").await?;
    let tokens = S::number(&mut counter, "SELECT COUNT(DISTINCT token) FROM orders").await?;
    let stale = reprice::<S>(&mut counter).await?;
    let cents = S::number(&mut counter, "SELECT cents FROM price").await?;
    if (sold, left, tokens, cents) != (LAMPS, 0, LAMPS, 4900) {
        return Err(format!("{sold} sold, {left} left, {tokens} tokens, {cents} cents").into());
    }
    Ok(format!(
        "{BUYERS} buyers, {LAMPS} lamps, {sold} sold, {left} left, {tokens} tokens; \
         refused: {stale}"
    ))
}

/// Sells a lamp if there is one. Reading and writing are two statements: without the lock two
/// buyers would get one lamp.
async fn serve<S: Shop>(counter: &mut Counter<S>, buyer: i64) -> Result<()> {
    let locks = TransactionLocks::new();
    let mut tx = counter.begin_with(S::BEGIN).await?;
    let lock = locks.acquire_in(&mut *tx, "stock/lamp").await?;
    let lamps = S::number(&mut tx, "SELECT lamps FROM stock").await?;
    if lamps == 0 {
        return Ok(tx.rollback().await?);
    }
    let token = lock.fencing_token();
    let sell = format!(
        "UPDATE stock SET lamps = {}; INSERT INTO orders VALUES ({buyer}, {token})",
        lamps - 1
    );
    tx.run(raw_sql(AssertSqlSafe(sell))).await?;
    Ok(tx.commit().await?)
}

/// Two assistants change the price. The lock of the first one was lost while it slept, and its
/// write comes after that of the second.
async fn reprice<S: Shop>(counter: &mut Counter<S>) -> Result<StaleToken> {
    let fence = Fence::new();
    let [asleep, awake] = [41, 42].map(FencingToken::new);
    let mut tx = counter.begin_with(S::BEGIN).await?;
    let cheaper = raw_sql("UPDATE price SET cents = 4900");
    fence
        .write_if_newer(&mut *tx, "price/lamp", awake, cheaper)
        .await?;
    tx.commit().await?;
    let mut tx = counter.begin_with(S::BEGIN).await?;
    let dearer = raw_sql("UPDATE price SET cents = 12900");
    let late = fence
        .write_if_newer(&mut *tx, "price/lamp", asleep, dearer)
        .await;
    tx.rollback().await?;
    match late {
        Err(WriteError::Stale(stale)) => Ok(stale),
        Err(error) => Err(error.into()),
        Ok(_) => Err("the late write was let in".into()),
    }
}

/// The database of a shop, and what is not the same in all of them.
trait Shop: Sized + 'static {
    type Database: sqlx::Database<Connection: Connection<Database = Self::Database>>;

    /// Who begins by reading may come too late to write on SQLite.
    const BEGIN: &str;

    fn number(
        connection: &mut Counter<Self>,
        sql: &'static str,
    ) -> impl Future<Output = sqlx::Result<i64>> + Send;
}

/// Where a buyer is served.
type Counter<S> = <<S as Shop>::Database as sqlx::Database>::Connection;

struct OnSqlite;

impl Shop for OnSqlite {
    type Database = sqlx::Sqlite;
    const BEGIN: &str = "BEGIN IMMEDIATE";

    async fn number(connection: &mut SqliteConnection, sql: &'static str) -> sqlx::Result<i64> {
        raw_sql(sql).fetch_one(connection).await?.try_get(0)
    }
}

struct OnPostgres;

impl Shop for OnPostgres {
    type Database = sqlx::Postgres;
    const BEGIN: &str = "BEGIN";

    async fn number(connection: &mut PgConnection, sql: &'static str) -> sqlx::Result<i64> {
        raw_sql(sql).fetch_one(connection).await?.try_get(0)
    }
}

async fn sqlite(file: &Path) -> Result<Vec<SqliteConnection>> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(30));
    let mut counters = Vec::new();
    for _ in 0..COUNTERS {
        counters.push(options.connect().await?);
    }
    Ok(counters)
}

async fn postgres(url: &str) -> Result<Vec<PgConnection>> {
    let mut counters = Vec::new();
    for _ in 0..COUNTERS {
        counters.push(PgConnection::connect(url).await?);
    }
    let table = Schema::of(&LockUrl::parse(url)?)?.sql();
    counters[0].run(raw_sql(AssertSqlSafe(table))).await?;
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use lock_testkit::servers::PostgresServer;

    use super::*;

    #[tokio::test]
    async fn as_many_are_sold_as_there_are() {
        let directory = tempfile::tempdir().unwrap();
        let file = format!("sqlite:{}", directory.path().join("sale.db").display());
        let postgres = PostgresServer::shared().database();
        let shops = [sale_at(&file).await, sale_at(&postgres).await];
        for said in shops {
            let said = said.unwrap();
            assert!(said.contains("25 sold, 0 left"), "{said}");
            assert!(said.contains("41 is stale"), "{said}");
        }
    }
}
