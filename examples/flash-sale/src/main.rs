//! A flash sale: 60 buyers want one of 40 pieces at the same moment, and a service with two instances
//! sells them in four ways.
//!
//! ```console
//! $ cargo run -p flash-sale
//! $ cargo run -p flash-sale --features polylock/redis -- redis://localhost
//! ```
//!
//! | way | what keeps two buyers from getting the same piece | sells |
//! |---|---|---|
//! | no lock | nothing | too many |
//! | local lock, 1 instance | a mutex of the process | all |
//! | local lock, 2 instances | a mutex of each process | too many |
//! | distributed lock | `locks.lock("item/1")` | all |
//! | conditional update | `UPDATE .. SET stock = stock - 1 WHERE stock > 0` | all |
//!
//! Where one statement can decide, as here, the conditional update is the better choice. A lock is for
//! what one statement cannot decide: several tables, another service.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use polylock::prelude::*;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{SqlitePool, query, query_scalar};
use tokio::sync::Mutex;

const PIECES: usize = 40;
const BUYERS: usize = 60;
/// The time between read and write: prices, vouchers, a call to another service.
const THINKING: Duration = Duration::from_millis(4);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    run(url.as_deref().unwrap_or("memory:flash-sale")).await
}

async fn run(url: &str) -> Result<()> {
    for (way, instances, expected) in [
        (Way::NoLock, 2, Ordering::Greater),
        (Way::LocalLock, 1, Ordering::Equal),
        (Way::LocalLock, 2, Ordering::Greater),
        (Way::DistributedLock, 2, Ordering::Equal),
        (Way::ConditionalUpdate, 2, Ordering::Equal),
    ] {
        let sold = sale(url, way, instances).await?;
        let is_expected = sold.cmp(&PIECES) == expected;
        ensure!(is_expected, "{way:?}: {sold} sold, not {expected:?}");
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Way {
    ConditionalUpdate,
    DistributedLock,
    LocalLock,
    NoLock,
}

/// Lets all buyers in at once, and returns how many of them get a piece.
async fn sale(url: &str, way: Way, instances: usize) -> Result<usize> {
    // The instances share a database in memory, which runs one statement at a time.
    let db = SqlitePoolOptions::new().max_connections(1);
    let db = db.connect("sqlite::memory:").await?;
    let create = query("CREATE TABLE item (stock INTEGER)");
    create.execute(&db).await?;
    let insert = query("INSERT INTO item VALUES (?)");
    insert.bind(i64::try_from(PIECES)?).execute(&db).await?;
    let mut service = Vec::new();
    for _ in 0..instances {
        service.push(Instance {
            db: db.clone(),
            locks: polylock::connect(url).await?,
            mutex: Mutex::new(()),
        });
    }
    let start = Instant::now();
    let requests = service.iter().cycle().take(BUYERS);
    let answers = try_join_all(requests.map(|instance| instance.sell(way))).await?;
    let sold = answers.iter().filter(|has_piece| **has_piece).count();
    let ms = start.elapsed().as_millis();
    println!("{way:?}, {instances} instances: {sold} of {PIECES} sold, {ms} ms");
    Ok(sold)
}

/// One process of the service.
struct Instance {
    db: SqlitePool,
    locks: Arc<dyn DistributedLock>,
    mutex: Mutex<()>,
}

impl Instance {
    /// Returns whether the buyer gets a piece.
    async fn sell(&self, way: Way) -> Result<bool> {
        match way {
            Way::NoLock => self.read_and_write().await,
            Way::LocalLock => {
                let _locked = self.mutex.lock().await;
                self.read_and_write().await
            }
            Way::DistributedLock => {
                let guard = self.locks.lock("item/1").await?;
                // Stops at the next await point if the lock is lost.
                let has_piece = guard.run(self.read_and_write()).await??;
                guard.release().await?;
                Ok(has_piece)
            }
            Way::ConditionalUpdate => {
                let update = query("UPDATE item SET stock = stock - 1 WHERE stock > 0");
                Ok(update.execute(&self.db).await?.rows_affected() == 1)
            }
        }
    }

    /// What needs a lock: another buyer may write between the read and the write.
    async fn read_and_write(&self) -> Result<bool> {
        let select = query_scalar("SELECT stock FROM item WHERE stock > 0");
        let stock: Option<i64> = select.fetch_optional(&self.db).await?;
        let Some(stock) = stock else {
            return Ok(false);
        };
        tokio::time::sleep(THINKING).await;
        let update = query("UPDATE item SET stock = ?").bind(stock - 1);
        update.execute(&self.db).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_way_sells_what_it_is_known_to_sell() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
