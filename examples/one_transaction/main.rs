//! A flash sale: forty buyers, eight at a time, want one of 25 lamps, and each is served in one
//! transaction that has the lock of the lamp.
//!
//! The lock is a row of the same database and goes with the transaction: it cannot be lost while
//! the transaction can still commit, and a commit gives it back.
//!
//! The sale runs without the lock first. On PostgreSQL it sells more lamps than there are: both
//! transactions read what was committed before, and one overwrites the other. On SQLite it sells
//! each once, because `BEGIN IMMEDIATE` alone lets one transaction write at a time, on the whole
//! file: the lock adds a token to that, for what is written later or somewhere else.
//!
//! ```console
//! $ cargo run -p polylock-examples --example one_transaction
//! $ cargo run -p polylock-examples --example one_transaction -- \
//!     --backend postgres://me:secret@localhost/sale
//! ```
//!
//! The database is a SQLite file in a temporary directory unless `--backend` names another file or
//! an empty database of PostgreSQL. Exits with 0 if with the lock exactly 25 were sold, each with a
//! token of its own, a shop assistant with an old token could not write, and without the lock more
//! were sold on PostgreSQL, and exactly 25 on SQLite.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use lock_core::LockUrl;
use lock_core::fencing::StaleToken;
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

    let mut counters = serve_all::<S>(counters, With::NoLock).await?;
    let unlocked = S::number(&mut counters[0], ORDERS).await?;
    if (unlocked > LAMPS) == S::IS_SERIAL || unlocked < LAMPS {
        return Err(format!("{unlocked} sold without the lock").into());
    }

    let mut counters = serve_all::<S>(counters, With::Lock).await?;
    let counter = &mut counters[0];
    let sold = S::number(counter, ORDERS).await?;
    let left = S::number(counter, "SELECT lamps FROM stock").await?;
    let tokens = S::number(counter, "SELECT COUNT(DISTINCT token) FROM orders").await?;
    let stale = reprice::<S>(counter).await?;
    let cents = S::number(counter, "SELECT cents FROM price").await?;
    if (sold, left, tokens, cents) != (LAMPS, 0, LAMPS, 4900) {
        return Err(format!("{sold} sold, {left} left, {tokens} tokens, {cents} cents").into());
    }
    Ok(format!(
        "{BUYERS} buyers, {LAMPS} lamps\n\
         in a transaction without the lock: {unlocked} sold\n\
         in a transaction with the lock: {sold} sold, {left} left, {tokens} tokens\n\
         refused: {stale}"
    ))
}

const ORDERS: &str = "SELECT COUNT(*) FROM orders";

/// What a transaction has.
#[derive(Clone, Copy)]
enum With {
    Lock,
    NoLock,
}

/// Puts the lamps on sale, serves all buyers, and returns the counters.
async fn serve_all<S: Shop>(mut counters: Vec<Counter<S>>, with: With) -> Result<Vec<Counter<S>>> {
    let stock =
        format!("DELETE FROM orders; DELETE FROM stock; INSERT INTO stock VALUES ({LAMPS})");
    counters[0].run(raw_sql(AssertSqlSafe(stock))).await?;
    let mut open = JoinSet::new();
    for (first, mut counter) in (0..).zip(counters) {
        open.spawn(async move {
            for buyer in (first..BUYERS).step_by(COUNTERS as usize) {
                serve::<S>(&mut counter, buyer, with).await?;
            }
            Ok(counter)
        });
    }
    open.join_all().await.into_iter().collect()
}

/// Sells a lamp if there is one. Reading and writing are two statements, and in between the shop
/// thinks.
async fn serve<S: Shop>(counter: &mut Counter<S>, buyer: i64, with: With) -> Result<()> {
    let mut tx = counter.begin_with(S::BEGIN).await?;
    let token = match with {
        With::Lock => {
            let locks = TransactionLocks::new();
            let lock = locks.acquire_in(&mut *tx, "stock/lamp").await?;
            lock.fencing_token().value()
        }
        With::NoLock => 0,
    };
    let lamps = S::number(&mut tx, "SELECT lamps FROM stock").await?;
    if lamps == 0 {
        return Ok(tx.rollback().await?);
    }
    tokio::time::sleep(THINKING).await;
    let sell = format!(
        "UPDATE stock SET lamps = {}; INSERT INTO orders VALUES ({buyer}, {token})",
        lamps - 1
    );
    tx.run(raw_sql(AssertSqlSafe(sell))).await?;
    Ok(tx.commit().await?)
}

const THINKING: Duration = Duration::from_millis(5);

/// Two assistants change the price. The first one keeps its token when its transaction has ended,
/// and the lock with it, falls asleep, and writes after the second.
async fn reprice<S: Shop>(counter: &mut Counter<S>) -> Result<StaleToken> {
    let (locks, fence) = (TransactionLocks::new(), Fence::new());
    let mut tx = counter.begin_with(S::BEGIN).await?;
    let asleep = locks.acquire_in(&mut *tx, "price/lamp").await?;
    let asleep = asleep.fencing_token();
    tx.commit().await?;

    let mut tx = counter.begin_with(S::BEGIN).await?;
    let awake = locks.acquire_in(&mut *tx, "price/lamp").await?;
    let awake = awake.fencing_token();
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
        Err(WriteError::Stale(stale)) if stale.token == asleep && asleep < awake => Ok(stale),
        Err(error) => Err(error.into()),
        Ok(_) => Err("the late write was let in".into()),
    }
}

/// The database of a shop, and what is not the same in all of them.
trait Shop: Sized + 'static {
    type Database: sqlx::Database<Connection: Connection<Database = Self::Database>>;

    /// Who begins by reading may come too late to write on SQLite.
    const BEGIN: &str;
    /// Whether such a transaction lets no other one read before it has written, lock or not.
    const IS_SERIAL: bool;

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
    const IS_SERIAL: bool = true;

    async fn number(connection: &mut SqliteConnection, sql: &'static str) -> sqlx::Result<i64> {
        raw_sql(sql).fetch_one(connection).await?.try_get(0)
    }
}

struct OnPostgres;

impl Shop for OnPostgres {
    type Database = sqlx::Postgres;
    const BEGIN: &str = "BEGIN";
    const IS_SERIAL: bool = false;

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
        let without = "without the lock: 25 sold";
        for (url, is_serial) in [(&file, true), (&postgres, false)] {
            let said = sale_at(url).await.unwrap();
            assert_eq!(said.contains(without), is_serial, "{said}");
            assert!(said.contains("25 sold, 0 left, 25 tokens"), "{said}");
            assert!(said.contains("is stale"), "{said}");
        }
    }
}
