//! A flash sale: 150 buyers want one of 100 pieces, and a service with two instances sells them in
//! eight ways.
//!
//! ```console
//! $ cargo run -p flash-sale
//! $ cargo run -p flash-sale -- redis://localhost
//! ```
//!
//! Without a URL it starts a private `redis-server`; stock and orders are in SQLite.
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
//! | counter in Redis | a script that decrements the stock if there is any | all |
//!
//! Where one statement says it, as here, the conditional update is the better choice. A lock is for
//! what one statement cannot say: several tables, another service. A double click is the last scene:
//! a lock per buyer that fails fast turns the second click away and leaves the stock alone.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock::prelude::*;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, Script};
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode};
use sqlx::sqlite::{SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Executor as _, Sqlite, SqlitePool, query, query_as, query_scalar};
use tokio::sync::{Barrier, Mutex};
use tokio::task::JoinSet;

const PIECES: i64 = 100;
/// Buyers come in waves, and those of a wave at the same moment.
const WAVES: i64 = 5;
const WAVE: i64 = 30;
/// The time between look and write: prices, vouchers, a call to another service.
const THINKING: Duration = Duration::from_millis(4);
const BUYERS: i64 = 20;

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(url) => run(&url).await,
        None => run(&RedisServer::start(RedisOptions::new()).url()).await,
    }
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
        (Way::RedisCounter, &two, Ordering::Equal),
    ] {
        let sold = sale(instances, way).await?;
        let is_expected = sold.cmp(&PIECES) == expected;
        ensure!(
            is_expected,
            "{way:?}: {sold} of {PIECES} sold, not {expected:?}"
        );
    }
    let (doubled, _) = double_clicks(&two, false).await?;
    ensure!(doubled > BUYERS, "no buyer got two orders without a lock");
    let proof = double_clicks(&two, true).await?;
    ensure!(
        proof == (BUYERS, BUYERS),
        "a second click was not turned away"
    );
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
    RedisCounter,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Sold,
    SoldOut,
    TryAgain,
}

impl Answer {
    fn of(is_sold: bool) -> Self {
        if is_sold { Self::Sold } else { Self::SoldOut }
    }
}

/// Opens the doors once and returns how many orders there are.
async fn sale(instances: &[Arc<Instance>], way: Way) -> Result<i64> {
    let item = format!("{way:?}, {} instances", instances.len());
    instances[0].put_on_sale(&item).await?;
    let (start, mut turned_away) = (Instant::now(), 0);
    for wave in 0..WAVES {
        let mut buyers = JoinSet::new();
        for (buyer, instance) in (wave * WAVE..(wave + 1) * WAVE).zip(instances.iter().cycle()) {
            let (instance, item) = (Arc::clone(instance), item.clone());
            buyers.spawn(async move { instance.sell(way, &item, buyer).await });
        }
        for answer in buyers.join_all().await {
            turned_away += usize::from(answer? == Answer::TryAgain);
        }
    }
    let ms = start.elapsed().as_millis();
    let sold = instances[0].orders(&item).await?;
    println!("{item:<34} {sold:>3} of {PIECES} sold, {turned_away:>3} turned away, {ms} ms");
    Ok(sold)
}

/// One process of the service.
struct Instance {
    db: SqlitePool,
    redis: MultiplexedConnection,
    locks: Arc<dyn DistributedLock>,
    turn: Mutex<()>,
}

impl Instance {
    async fn start(url: &str, db: &SqlitePool) -> Result<Arc<Self>> {
        let redis = redis::Client::open(url)?;
        Ok(Arc::new(Self {
            db: db.clone(),
            redis: redis.get_multiplexed_async_connection().await?,
            locks: polylock::connect(url).await?,
            turn: Mutex::new(()),
        }))
    }

    async fn sell(&self, way: Way, item: &str, buyer: i64) -> Result<Answer> {
        match way {
            Way::NoLock => self.look_and_write(item, buyer).await,
            Way::LocalLock => {
                let _turn = self.turn.lock().await;
                self.look_and_write(item, buyer).await
            }
            Way::DistributedLock => {
                let guard = self.locks.lock(format!("item/{item}")).await?;
                // Stops at the next await point if the lock is lost.
                let answer = guard.run(self.look_and_write(item, buyer)).await?;
                guard.release().await?;
                answer
            }
            Way::CompareAndSetStrict => self.compare_and_set(item, buyer).await,
            Way::CompareAndSetRetried => loop {
                match self.compare_and_set(item, buyer).await? {
                    Answer::TryAgain => {}
                    answer => return Ok(answer),
                }
            },
            Way::RedisCounter if !self.decrement_in_redis(item).await? => Ok(Answer::SoldOut),
            Way::ConditionalUpdate | Way::RedisCounter => {
                let sql = "UPDATE items SET stock = stock - 1 WHERE name = ? AND stock > 0";
                let update = query(sql).bind(item);
                Ok(Answer::of(self.write(update, item, buyer).await?))
            }
        }
    }

    /// What needs a lock: between the look and the write another one may have written.
    async fn look_and_write(&self, item: &str, buyer: i64) -> Result<Answer> {
        let Some((stock, _)) = self.look(item).await? else {
            return Ok(Answer::SoldOut);
        };
        let sql = "UPDATE items SET stock = ? WHERE name = ?";
        let update = query(sql).bind(stock - 1).bind(item);
        Ok(Answer::of(self.write(update, item, buyer).await?))
    }

    async fn compare_and_set(&self, item: &str, buyer: i64) -> Result<Answer> {
        let Some((stock, version)) = self.look(item).await? else {
            return Ok(Answer::SoldOut);
        };
        let sql =
            "UPDATE items SET stock = ?, version = version + 1 WHERE name = ? AND version = ?";
        let update = query(sql).bind(stock - 1).bind(item).bind(version);
        match self.write(update, item, buyer).await? {
            true => Ok(Answer::Sold),
            false => Ok(Answer::TryAgain),
        }
    }

    /// One round trip and no lock. A crash before the order is written loses a piece: too few are
    /// sold, never too many.
    async fn decrement_in_redis(&self, item: &str) -> Result<bool> {
        let script = Script::new(
            "if tonumber(redis.call('GET', KEYS[1])) <= 0 then return 0 end
             redis.call('DECR', KEYS[1])
             return 1",
        );
        let call = script.key(format!("stock:{item}"));
        Ok(call.invoke_async(&mut self.redis.clone()).await?)
    }

    /// Stock and version, if there is any stock, after the time that a service thinks about it.
    async fn look(&self, item: &str) -> Result<Option<(i64, i64)>> {
        let select = query_as("SELECT stock, version FROM items WHERE name = ?");
        let found: (i64, i64) = select.bind(item).fetch_one(&self.db).await?;
        if found.0 == 0 {
            return Ok(None);
        }
        tokio::time::sleep(THINKING).await;
        Ok(Some(found))
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

    async fn put_on_sale(&self, item: &str) -> Result<()> {
        let insert = query("INSERT INTO items VALUES (?, ?, 0)");
        insert.bind(item).bind(PIECES).execute(&self.db).await?;
        let stock = format!("stock:{item}");
        Ok(self.redis.clone().set(stock, PIECES).await?)
    }

    async fn orders(&self, item: &str) -> Result<i64> {
        let count = query_scalar("SELECT COUNT(*) FROM orders WHERE item = ?").bind(item);
        Ok(count.fetch_one(&self.db).await?)
    }

    /// One piece for each buyer, unless a click of the same buyer is being served. Both clicks have
    /// tried and looked before one is served. Returns whether this one was turned away.
    async fn click(&self, item: &str, buyer: i64, looked: &Barrier, lock: bool) -> Result<bool> {
        let key = format!("buyer/{buyer}/{item}");
        let guard = if lock {
            self.locks.try_lock(key).await?
        } else {
            None
        };
        let sql = "SELECT COUNT(*) FROM orders WHERE item = ? AND buyer = ?";
        let count = query_scalar(sql).bind(item).bind(buyer);
        let before: i64 = count.fetch_one(&self.db).await?;
        looked.wait().await;
        if lock && guard.is_none() {
            return Ok(true);
        }
        if before == 0 {
            self.sell(Way::ConditionalUpdate, item, buyer).await?;
        }
        if let Some(guard) = guard {
            guard.release().await?;
        }
        Ok(false)
    }
}

type Update<'q> = query::Query<'q, Sqlite, SqliteArguments>;

/// Each buyer clicks twice, at both instances. Returns the orders, and the clicks turned away.
async fn double_clicks(instances: &[Arc<Instance>; 2], is_locked: bool) -> Result<(i64, i64)> {
    let lock = if is_locked { "with a" } else { "without a" };
    let item = format!("double clicks, {lock} lock per buyer");
    instances[0].put_on_sale(&item).await?;
    let mut clicks = JoinSet::new();
    for buyer in 0..BUYERS {
        let looked = Arc::new(Barrier::new(2));
        for instance in instances.clone() {
            let (item, looked) = (item.clone(), Arc::clone(&looked));
            clicks.spawn(async move { instance.click(&item, buyer, &looked, is_locked).await });
        }
    }
    let mut turned_away = 0;
    for click in clicks.join_all().await {
        turned_away += i64::from(click?);
    }
    let orders = instances[0].orders(&item).await?;
    println!("{item}: {orders} orders of {BUYERS} buyers, {turned_away} clicks turned away");
    Ok((orders, turned_away))
}

#[cfg(test)]
mod tests {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_way_sells_what_it_is_known_to_sell() -> anyhow::Result<()> {
        let redis = super::RedisServer::start(super::RedisOptions::new());
        super::run(&redis.url()).await
    }
}
