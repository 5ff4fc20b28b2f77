//! A flash sale: 60 buyers want one of 40 pieces at the same moment, and a service with two instances
//! sells them in eight ways. Then 20 buyers click twice.
//!
//! ```console
//! $ cargo run -p flash-sale
//! $ cargo run -p flash-sale -- redis://localhost
//! ```
//!
//! Without a URL it starts a private `redis-server`; stock and orders are in SQLite.
//!
//! | way | what keeps two buyers from getting the same piece | sells |
//! |---|---|---|
//! | no lock | nothing | too many |
//! | local lock, 1 instance | a mutex of the process | all |
//! | local lock, 2 instances | a mutex of each process | too many |
//! | distributed lock | `locks.lock("item/1")` | all |
//! | compare and set, strict | a version; a buyer who finds another one is turned away | too few |
//! | compare and set, retried | the same; a buyer who finds another one begins again | all |
//! | conditional update | `UPDATE .. SET stock = stock - 1 WHERE stock > 0` | all |
//! | counter in Redis | a script that decrements the stock if there is any | all |
//!
//! Where one statement can decide, as here, the conditional update is the better choice. A lock is for
//! what one statement cannot decide: several tables, another service. A lock for each buyer, which is
//! not waited for, turns the second of two clicks away, and no buyer waits for another one.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock::prelude::*;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, Script};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{SqlitePool, query, query_as, query_scalar, raw_sql};
use tokio::sync::Mutex;

const PIECES: usize = 40;
const BUYERS: usize = 60;
const DOUBLE_CLICKERS: usize = 20;
/// The time between read and write: prices, vouchers, a call to another service.
const THINKING: Duration = Duration::from_millis(4);

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(url) => run(&url).await,
        None => run(&RedisServer::start(RedisOptions::new()).url()).await,
    }
}

async fn run(url: &str) -> Result<()> {
    for (way, instances, expected) in [
        (Way::NoLock, 2, Ordering::Greater),
        (Way::LocalLock, 1, Ordering::Equal),
        (Way::LocalLock, 2, Ordering::Greater),
        (Way::DistributedLock, 2, Ordering::Equal),
        (Way::CompareAndSetStrict, 2, Ordering::Less),
        (Way::CompareAndSetRetried, 2, Ordering::Equal),
        (Way::ConditionalUpdate, 2, Ordering::Equal),
        (Way::CounterInRedis, 2, Ordering::Equal),
    ] {
        let sold = sale(url, way, instances).await?;
        let is_expected = sold.cmp(&PIECES) == expected;
        ensure!(is_expected, "{way:?}: {sold} sold, not {expected:?}");
    }
    let unlocked = double_clicks(url, false).await?;
    let locked = double_clicks(url, true).await?;
    ensure!(unlocked > DOUBLE_CLICKERS, "no buyer got two pieces");
    ensure!(
        locked == DOUBLE_CLICKERS,
        "{locked} pieces sold to buyers with a lock"
    );
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Way {
    CompareAndSetRetried,
    CompareAndSetStrict,
    ConditionalUpdate,
    CounterInRedis,
    DistributedLock,
    LocalLock,
    NoLock,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Sold,
    SoldOut,
    TurnedAway,
}

/// Lets all buyers in at once, and returns how many of them get a piece.
async fn sale(url: &str, way: Way, instances: usize) -> Result<usize> {
    let service = open_shop(url, instances).await?;
    let start = Instant::now();
    let requests = service.iter().cycle().take(BUYERS);
    let answers = try_join_all(requests.map(|instance| instance.sell(way))).await?;
    let count = |wanted| answers.iter().filter(|answer| **answer == wanted).count();
    let (sold, turned_away) = (count(Answer::Sold), count(Answer::TurnedAway));
    let ms = start.elapsed().as_millis();
    println!(
        "{way:?}, {instances} instances: {sold} of {PIECES} sold, {turned_away} turned away, {ms} ms"
    );
    Ok(sold)
}

/// Each buyer clicks twice, at both instances. Returns the pieces sold.
async fn double_clicks(url: &str, is_locked: bool) -> Result<usize> {
    let service = open_shop(url, 2).await?;
    let clicks = (0..DOUBLE_CLICKERS).flat_map(|buyer| service.iter().map(move |one| (buyer, one)));
    let answers = clicks.map(|(buyer, instance)| instance.click(buyer, is_locked));
    let answers = try_join_all(answers).await?;
    let sold = answers.iter().filter(|answer| **answer == Answer::Sold);
    let sold = sold.count();
    let lock = if is_locked { "a" } else { "no" };
    println!("{DOUBLE_CLICKERS} buyers click twice, {lock} lock for each: {sold} sold");
    Ok(sold)
}

/// The instances of a service with the same stock.
async fn open_shop(url: &str, instances: usize) -> Result<Vec<Instance>> {
    // The instances share a database in memory, which runs one statement at a time.
    let db = SqlitePoolOptions::new().max_connections(1);
    let db = db.connect("sqlite::memory:").await?;
    let schema =
        "CREATE TABLE item (stock INTEGER, version INTEGER); CREATE TABLE orders (buyer INTEGER)";
    raw_sql(schema).execute(&db).await?;
    let insert = query("INSERT INTO item VALUES (?, 0)");
    insert.bind(i64::try_from(PIECES)?).execute(&db).await?;
    let redis = redis::Client::open(url)?;
    let mut redis = redis.get_multiplexed_async_connection().await?;
    let () = redis.set("stock/1", PIECES).await?;
    let mut service = Vec::new();
    for _ in 0..instances {
        service.push(Instance {
            db: db.clone(),
            redis: redis.clone(),
            locks: polylock::connect(url).await?,
            mutex: Mutex::new(()),
        });
    }
    Ok(service)
}

/// One process of the service.
struct Instance {
    db: SqlitePool,
    redis: MultiplexedConnection,
    locks: Arc<dyn DistributedLock>,
    mutex: Mutex<()>,
}

impl Instance {
    async fn sell(&self, way: Way) -> Result<Answer> {
        match way {
            Way::NoLock => self.read_and_write().await,
            Way::LocalLock => {
                let _locked = self.mutex.lock().await;
                self.read_and_write().await
            }
            Way::DistributedLock => {
                let guard = self.locks.lock("item/1").await?;
                // Stops at the next await point if the lock is lost.
                let answer = guard.run(self.read_and_write()).await??;
                guard.release().await?;
                Ok(answer)
            }
            Way::CompareAndSetStrict => self.compare_and_set().await,
            Way::CompareAndSetRetried => loop {
                let answer = self.compare_and_set().await?;
                if answer != Answer::TurnedAway {
                    return Ok(answer);
                }
            },
            Way::ConditionalUpdate => {
                let update = query("UPDATE item SET stock = stock - 1 WHERE stock > 0");
                let updated = update.execute(&self.db).await?.rows_affected();
                Ok(if updated == 1 {
                    Answer::Sold
                } else {
                    Answer::SoldOut
                })
            }
            // A crash before the order is written loses a piece: too few are sold, never too many.
            Way::CounterInRedis => {
                let script = "if tonumber(redis.call('GET', KEYS[1])) <= 0 then return 0 end
                              redis.call('DECR', KEYS[1])
                              return 1";
                let mut redis = self.redis.clone();
                let script = Script::new(script);
                let has_piece = script.key("stock/1").invoke_async(&mut redis).await?;
                Ok(if has_piece {
                    Answer::Sold
                } else {
                    Answer::SoldOut
                })
            }
        }
    }

    /// What needs a lock: another buyer may write between the read and the write.
    async fn read_and_write(&self) -> Result<Answer> {
        let Some((stock, _)) = self.read().await? else {
            return Ok(Answer::SoldOut);
        };
        let update = query("UPDATE item SET stock = ?").bind(stock - 1);
        update.execute(&self.db).await?;
        Ok(Answer::Sold)
    }

    /// Writes only if nobody has written since the read.
    async fn compare_and_set(&self) -> Result<Answer> {
        let Some((stock, version)) = self.read().await? else {
            return Ok(Answer::SoldOut);
        };
        let update = "UPDATE item SET stock = ?, version = version + 1 WHERE version = ?";
        let update = query(update).bind(stock - 1).bind(version);
        let updated = update.execute(&self.db).await?.rows_affected();
        Ok(if updated == 1 {
            Answer::Sold
        } else {
            Answer::TurnedAway
        })
    }

    /// Stock and version if anything is left, after the time that the service needs.
    async fn read(&self) -> Result<Option<(i64, i64)>> {
        let select = query_as("SELECT stock, version FROM item WHERE stock > 0");
        let found = select.fetch_optional(&self.db).await?;
        tokio::time::sleep(THINKING).await;
        Ok(found)
    }

    /// One piece for each buyer.
    async fn click(&self, buyer: usize, is_locked: bool) -> Result<Answer> {
        if !is_locked {
            return self.order(buyer).await;
        }
        let Some(guard) = self.locks.try_lock(format!("buyer/{buyer}")).await? else {
            return Ok(Answer::TurnedAway);
        };
        let answer = guard.run(self.order(buyer)).await??;
        guard.release().await?;
        Ok(answer)
    }

    async fn order(&self, buyer: usize) -> Result<Answer> {
        let buyer = i64::try_from(buyer)?;
        let count = query_scalar("SELECT COUNT(*) FROM orders WHERE buyer = ?").bind(buyer);
        let orders: i64 = count.fetch_one(&self.db).await?;
        if orders > 0 {
            return Ok(Answer::TurnedAway);
        }
        tokio::time::sleep(THINKING).await;
        let insert = query("INSERT INTO orders VALUES (?)").bind(buyer);
        insert.execute(&self.db).await?;
        self.sell(Way::ConditionalUpdate).await
    }
}

#[cfg(test)]
mod tests {
    use super::{RedisOptions, RedisServer, Result, run};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_way_sells_what_it_is_known_to_sell() -> Result<()> {
        run(&RedisServer::start(RedisOptions::new()).url()).await
    }
}
