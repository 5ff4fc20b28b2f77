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
const WAVES: usize = 5;
const WAVE: usize = 30;
/// The time between look and write: prices, vouchers, a call to another service.
const THINKING: Duration = Duration::from_millis(1);

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
    let db = SqlitePoolOptions::new()
        .max_connections(4)
        .connect_with(options)
        .await?;
    db.execute(
        "CREATE TABLE items (name TEXT PRIMARY KEY, stock INTEGER, version INTEGER DEFAULT 0);
         CREATE TABLE orders (item TEXT, buyer INTEGER)",
    )
    .await?;
    let instances = [
        Instance::start(url, &db).await?,
        Instance::start(url, &db).await?,
    ];
    let two = &instances[..];

    let too_many = sale(&instances[..], Way::NoLock).await?;
    ensure!(too_many > PIECES, "nothing was sold twice without a lock");
    ensure!(sale(&instances[..1], Way::LocalLock).await? == PIECES);
    let too_many = sale(two, Way::LocalLock).await?;
    ensure!(
        too_many > PIECES,
        "nothing was sold twice with two local locks"
    );
    ensure!(sale(two, Way::DistributedLock).await? == PIECES);
    let too_few = sale(two, Way::CompareAndSetStrict).await?;
    ensure!(too_few < PIECES, "nobody was turned away");
    ensure!(sale(two, Way::CompareAndSetRetried).await? == PIECES);
    ensure!(sale(two, Way::ConditionalUpdate).await? == PIECES);
    ensure!(sale(two, Way::RedisCounter).await? == PIECES);

    let (doubled, _) = double_clicks(&instances, UserLock::Off).await?;
    ensure!(doubled > BUYERS, "no buyer got two orders without a lock");
    let (orders, turned_away) = double_clicks(&instances, UserLock::On).await?;
    ensure!(
        (orders, turned_away) == (BUYERS, BUYERS),
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

/// Opens the doors once and returns how many orders there are.
async fn sale(instances: &[Arc<Instance>], way: Way) -> Result<i64> {
    let item = format!("{way:?}, {} instances", instances.len());
    instances[0].put_on_sale(&item).await?;
    // The worst case, made certain: those who can look at the same time do so before one writes.
    let meeting = match (way, instances.len()) {
        (Way::NoLock | Way::CompareAndSetStrict | Way::CompareAndSetRetried, _) => WAVE,
        (Way::LocalLock, instances) => instances,
        _ => 1,
    };
    let meeting = Arc::new(Barrier::new(meeting));
    let (start, mut turned_away) = (Instant::now(), 0);
    for wave in 0..WAVES {
        let mut buyers = JoinSet::new();
        for (number, instance) in (0..WAVE).zip(instances.iter().cycle()) {
            let (instance, item) = (Arc::clone(instance), item.clone());
            let (buyer, meeting) = ((wave * WAVE + number) as i64, Arc::clone(&meeting));
            buyers.spawn(async move { instance.sell(way, &item, buyer, &meeting).await });
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
        Ok(Arc::new(Self {
            db: db.clone(),
            redis: redis::Client::open(url)?
                .get_multiplexed_async_connection()
                .await?,
            locks: polylock::connect(url).await?,
            turn: Mutex::new(()),
        }))
    }

    async fn sell(&self, way: Way, item: &str, buyer: i64, meeting: &Barrier) -> Result<Answer> {
        match way {
            Way::NoLock => self.look_and_write(item, buyer, meeting).await,
            Way::LocalLock => {
                let _turn = self.turn.lock().await;
                self.look_and_write(item, buyer, meeting).await
            }
            Way::DistributedLock => {
                let guard = self.locks.lock(format!("item/{item}")).await?;
                // Stops at the next await point if the lock is lost.
                let answer = guard.run(self.look_and_write(item, buyer, meeting)).await?;
                guard.release().await?;
                answer
            }
            Way::CompareAndSetStrict => self.compare_and_set(item, buyer, meeting).await,
            Way::CompareAndSetRetried => {
                let mut answer = self.compare_and_set(item, buyer, meeting).await?;
                while answer == Answer::TryAgain {
                    answer = self.compare_and_set(item, buyer, &Barrier::new(1)).await?;
                }
                Ok(answer)
            }
            Way::ConditionalUpdate => {
                let sql = "UPDATE items SET stock = stock - 1 WHERE name = ? AND stock > 0";
                self.order(query(sql).bind(item), item, buyer, Answer::SoldOut)
                    .await
            }
            Way::RedisCounter => self.decrement_in_redis(item, buyer).await,
        }
    }

    /// What needs a lock: between the look and the write another one may have written.
    async fn look_and_write(&self, item: &str, buyer: i64, meeting: &Barrier) -> Result<Answer> {
        let (stock, _) = self.look(item).await?;
        if stock == 0 {
            return Ok(Answer::SoldOut);
        }
        meeting.wait().await;
        tokio::time::sleep(THINKING).await;
        let update = query("UPDATE items SET stock = ? WHERE name = ?")
            .bind(stock - 1)
            .bind(item);
        self.order(update, item, buyer, Answer::SoldOut).await
    }

    async fn compare_and_set(&self, item: &str, buyer: i64, meeting: &Barrier) -> Result<Answer> {
        let (stock, version) = self.look(item).await?;
        if stock == 0 {
            return Ok(Answer::SoldOut);
        }
        meeting.wait().await;
        tokio::time::sleep(THINKING).await;
        let sql =
            "UPDATE items SET stock = ?, version = version + 1 WHERE name = ? AND version = ?";
        let update = query(sql).bind(stock - 1).bind(item).bind(version);
        self.order(update, item, buyer, Answer::TryAgain).await
    }

    /// One round trip and no lock. A crash before the order is written loses a piece: too few are
    /// sold, never too many.
    async fn decrement_in_redis(&self, item: &str, buyer: i64) -> Result<Answer> {
        let script = Script::new(
            "if tonumber(redis.call('GET', KEYS[1])) <= 0 then return 0 end
             redis.call('DECR', KEYS[1])
             return 1",
        );
        let mut redis = self.redis.clone();
        if !script
            .key(format!("stock:{item}"))
            .invoke_async(&mut redis)
            .await?
        {
            return Ok(Answer::SoldOut);
        }
        let update = query("UPDATE items SET stock = stock - 1 WHERE name = ?").bind(item);
        self.order(update, item, buyer, Answer::SoldOut).await
    }

    /// Changes the stock and inserts the order, or neither.
    async fn order(
        &self,
        update: Update<'_>,
        item: &str,
        buyer: i64,
        otherwise: Answer,
    ) -> Result<Answer> {
        let mut tx = self.db.begin().await?;
        if update.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(otherwise);
        }
        let insert = query("INSERT INTO orders VALUES (?, ?)")
            .bind(item)
            .bind(buyer);
        insert.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(Answer::Sold)
    }

    async fn look(&self, item: &str) -> Result<(i64, i64)> {
        let select = query_as("SELECT stock, version FROM items WHERE name = ?").bind(item);
        Ok(select.fetch_one(&self.db).await?)
    }

    async fn put_on_sale(&self, item: &str) -> Result<()> {
        let insert = query("INSERT INTO items (name, stock) VALUES (?, ?)");
        insert.bind(item).bind(PIECES).execute(&self.db).await?;
        let () = self
            .redis
            .clone()
            .set(format!("stock:{item}"), PIECES)
            .await?;
        Ok(())
    }

    async fn orders(&self, item: &str) -> Result<i64> {
        let count = query_scalar("SELECT COUNT(*) FROM orders WHERE item = ?").bind(item);
        Ok(count.fetch_one(&self.db).await?)
    }

    async fn orders_of(&self, item: &str, buyer: i64) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM orders WHERE item = ? AND buyer = ?";
        Ok(query_scalar(sql)
            .bind(item)
            .bind(buyer)
            .fetch_one(&self.db)
            .await?)
    }

    /// One piece for each buyer; `None` turns the click away.
    async fn click(
        &self,
        item: &str,
        buyer: i64,
        lock: UserLock,
        met: &Barrier,
    ) -> Result<Option<Answer>> {
        let guard = match lock {
            UserLock::Off => None,
            UserLock::On => self.locks.try_lock(format!("buyer/{buyer}/{item}")).await?,
        };
        if lock == UserLock::On {
            // Both clicks have tried before one is served.
            met.wait().await;
            if guard.is_none() {
                return Ok(None);
            }
        }
        let is_first = self.orders_of(item, buyer).await? == 0;
        if lock == UserLock::Off {
            met.wait().await;
        }
        let no_meeting = Barrier::new(1);
        let answer = match is_first {
            true => {
                self.sell(Way::ConditionalUpdate, item, buyer, &no_meeting)
                    .await?
            }
            false => Answer::SoldOut,
        };
        if let Some(guard) = guard {
            guard.release().await?;
        }
        Ok(Some(answer))
    }
}

type Update<'q> = query::Query<'q, Sqlite, SqliteArguments>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum UserLock {
    Off,
    On,
}

const BUYERS: i64 = 20;

/// Each buyer clicks twice, at both instances. Returns the orders, and the clicks turned away.
async fn double_clicks(instances: &[Arc<Instance>; 2], lock: UserLock) -> Result<(i64, i64)> {
    let item = format!("double clicks, user lock {lock:?}");
    instances[0].put_on_sale(&item).await?;
    let mut clicks = JoinSet::new();
    for buyer in 0..BUYERS {
        let met = Arc::new(Barrier::new(2));
        for instance in instances {
            let (instance, item, met) = (Arc::clone(instance), item.clone(), Arc::clone(&met));
            clicks.spawn(async move { instance.click(&item, buyer, lock, &met).await });
        }
    }
    let answers = clicks
        .join_all()
        .await
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let turned_away = answers.iter().filter(|answer| answer.is_none()).count() as i64;
    let orders = instances[0].orders(&item).await?;
    println!("{item:<34} {orders:>3} orders of {BUYERS} buyers, {turned_away} clicks turned away");
    Ok((orders, turned_away))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_way_sells_what_it_is_known_to_sell() -> Result<()> {
        run(&RedisServer::start(RedisOptions::new()).url()).await
    }
}
