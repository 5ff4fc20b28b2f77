//! A flash sale: 150 buyers want one of 100 pieces, and a service with two instances sells them in
//! seven ways.
//!
//! ```console
//! $ cargo run -p flash-sale
//! $ cargo run -p flash-sale --features polylock/redis -- redis://localhost
//! ```
//!
//! Stock and orders are in SQLite.
//!
//! | way | what keeps two orders from selling the same piece | sells |
//! |---|---|---|
//! | no lock | nothing | too many |
//! | local lock, 1 instance | a mutex of the process | all |
//! | local lock, 2 instances | a mutex of each process | too many |
//! | distributed lock | `locks.lock(item)` | all |
//! | compare and set, strict | a version column; who finds another version is turned away | too few |
//! | compare and set, retried | the same; who finds another version begins again | all |
//! | conditional update | `UPDATE .. SET stock = stock - 1 WHERE stock > 0` | all |
//!
//! Where one statement says it, as here, the conditional update is the better choice. A lock is for
//! what one statement cannot say: several tables, another service.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use polylock::prelude::*;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode};
use sqlx::sqlite::{SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Executor as _, Sqlite, SqlitePool, query, query_as, query_scalar};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const PIECES: i64 = 100;
/// Buyers come in waves, and those of a wave at the same moment.
const WAVES: i64 = 5;
const WAVE: i64 = 30;
/// The time between look and write: prices, vouchers, a call to another service.
const THINKING: Duration = Duration::from_millis(4);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    run(url.as_deref().unwrap_or("memory:flash-sale")).await
}

async fn run(url: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let options = SqliteConnectOptions::new()
        .filename(directory.path().join("shop.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Off) // nothing has to survive a power cut
        .busy_timeout(Duration::from_secs(30));
    let pool = SqlitePoolOptions::new().max_connections(4);
    let db = pool.connect_with(options).await?;
    let schema = "CREATE TABLE items (name TEXT PRIMARY KEY, stock INTEGER, version INTEGER);
         CREATE TABLE orders (item TEXT, buyer INTEGER)";
    db.execute(schema).await?;
    let one = Instance::start(url, &db).await?;
    let two = [Arc::clone(&one), Instance::start(url, &db).await?];

    for (way, instances, expected) in [
        (Way::NoLock, &two[..], Ordering::Greater),
        (Way::LocalLock, &two[..1], Ordering::Equal),
        (Way::LocalLock, &two, Ordering::Greater),
        (Way::DistributedLock, &two, Ordering::Equal),
        (Way::CompareAndSetStrict, &two, Ordering::Less),
        (Way::CompareAndSetRetried, &two, Ordering::Equal),
        (Way::ConditionalUpdate, &two, Ordering::Equal),
    ] {
        let sold = sale(instances, way).await?;
        let is_expected = sold.cmp(&PIECES) == expected;
        ensure!(
            is_expected,
            "{way:?}: {sold} of {PIECES} sold, not {expected:?}"
        );
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    CompareAndSetRetried,
    CompareAndSetStrict,
    ConditionalUpdate,
    DistributedLock,
    LocalLock,
    NoLock,
}

/// Opens the doors once and returns how many orders there are.
async fn sale(instances: &[Arc<Instance>], way: Way) -> Result<i64> {
    let item = format!("{way:?}, {} instances", instances.len());
    let db = &instances[0].db;
    let insert = query("INSERT INTO items VALUES (?, ?, 0)");
    insert.bind(&item).bind(PIECES).execute(db).await?;
    let (start, mut turned_away) = (Instant::now(), 0);
    for wave in 0..WAVES {
        let mut buyers = JoinSet::new();
        for (buyer, instance) in (wave * WAVE..(wave + 1) * WAVE).zip(instances.iter().cycle()) {
            let (instance, item) = (Arc::clone(instance), item.clone());
            buyers.spawn(async move { instance.sell(way, &item, buyer).await });
        }
        for has_answer in buyers.join_all().await {
            turned_away += usize::from(!has_answer?);
        }
    }
    let ms = start.elapsed().as_millis();
    let count = query_scalar("SELECT COUNT(*) FROM orders WHERE item = ?");
    let sold = count.bind(&item).fetch_one(db).await?;
    println!("{item:<34} {sold:>3} of {PIECES} sold, {turned_away:>3} turned away, {ms} ms");
    Ok(sold)
}

/// One process of the service.
struct Instance {
    db: SqlitePool,
    locks: Arc<dyn DistributedLock>,
    turn: Mutex<()>,
}

impl Instance {
    async fn start(url: &str, db: &SqlitePool) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            db: db.clone(),
            locks: polylock::connect(url).await?,
            turn: Mutex::new(()),
        }))
    }

    /// Whether the buyer has a piece or learns that there is none; otherwise it is turned away.
    async fn sell(&self, way: Way, item: &str, buyer: i64) -> Result<bool> {
        match way {
            Way::NoLock => self.look_and_write(item, buyer).await?,
            Way::LocalLock => {
                let _turn = self.turn.lock().await;
                self.look_and_write(item, buyer).await?;
            }
            Way::DistributedLock => {
                let guard = self.locks.lock(format!("item/{item}")).await?;
                // Stops at the next await point if the lock is lost.
                guard.run(self.look_and_write(item, buyer)).await??;
                guard.release().await?;
            }
            Way::CompareAndSetStrict => return self.compare_and_set(item, buyer).await,
            Way::CompareAndSetRetried => while !self.compare_and_set(item, buyer).await? {},
            Way::ConditionalUpdate => {
                let sql = "UPDATE items SET stock = stock - 1 WHERE name = ? AND stock > 0";
                self.write(query(sql).bind(item), item, buyer).await?;
            }
        }
        Ok(true)
    }

    /// What needs a lock: between the look and the write another one may have written.
    async fn look_and_write(&self, item: &str, buyer: i64) -> Result<()> {
        if let Some((stock, _)) = self.look(item).await? {
            let update = query("UPDATE items SET stock = ? WHERE name = ?");
            self.write(update.bind(stock - 1).bind(item), item, buyer)
                .await?;
        }
        Ok(())
    }

    /// False if another one has written since the look.
    async fn compare_and_set(&self, item: &str, buyer: i64) -> Result<bool> {
        let Some((stock, version)) = self.look(item).await? else {
            return Ok(true);
        };
        let sql =
            "UPDATE items SET stock = ?, version = version + 1 WHERE name = ? AND version = ?";
        let update = query(sql).bind(stock - 1).bind(item).bind(version);
        self.write(update, item, buyer).await
    }

    /// Stock and version, if there is any stock, after the time that a service thinks about it.
    async fn look(&self, item: &str) -> Result<Option<(i64, i64)>> {
        let select = query_as("SELECT stock, version FROM items WHERE name = ? AND stock > 0");
        let found = select.bind(item).fetch_optional(&self.db).await?;
        if found.is_some() {
            tokio::time::sleep(THINKING).await;
        }
        Ok(found)
    }

    /// Changes the stock and inserts the order, or neither.
    async fn write(&self, update: Update<'_>, item: &str, buyer: i64) -> Result<bool> {
        let mut tx = self.db.begin().await?;
        if update.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(false);
        }
        let insert = query("INSERT INTO orders VALUES (?, ?)");
        insert.bind(item).bind(buyer).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(true)
    }
}

type Update<'q> = query::Query<'q, Sqlite, SqliteArguments>;

#[cfg(test)]
mod tests {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_way_sells_what_it_is_known_to_sell() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
