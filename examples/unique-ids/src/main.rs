//! Unique ids that grow with time: a timestamp and a counter, and what the counter must be.
//!
//! ```console
//! $ cargo run -p unique-ids
//! $ cargo run -p unique-ids -- redis://localhost
//! ```
//!
//! Without a URL it starts a private `redis-server`. Two instances of a service make ids at the same
//! time, in four ways:
//!
//! | way | the bits below the seconds | unique |
//! |---|---|---|
//! | timestamp | none | no |
//! | counter of the process | 0, 1, 2, .. | no: both instances count |
//! | counter of the server | `INCR`, one round trip for each id | yes |
//! | number of the instance and counter | the number that the instance holds a lock on | yes |
//!
//! An instance that holds the lock `instance/3` is number 3 until it loses the lock, and checks that before each
//! id. Numbers are used again, so ten bits are enough; an instance waits until the last id of the one that had
//! its number before is in the past.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock::prelude::*;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

const IDS: usize = 2000;
const INSTANCE_BITS: u32 = 10;
const COUNTER_BITS: u32 = 32;
const TTL: Duration = Duration::from_secs(10);
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(url) => run(&url).await,
        None => run(&RedisServer::start(RedisOptions::new()).url()).await,
    }
}

async fn run(url: &str) -> Result<()> {
    let (one, other) = tokio::try_join!(Instance::start(url), Instance::start(url))?;
    let mut ids = HashSet::new();
    for (way, is_unique) in [
        (Way::Timestamp, false),
        (Way::ProcessCounter, false),
        (Way::ServerCounter, true),
        (Way::InstanceAndCounter, true),
    ] {
        ids.clear();
        for _ in 0..IDS {
            ids.insert(one.next_id(way).await?);
            ids.insert(other.next_id(way).await?);
        }
        let (name, unique) = (format!("{way:?}"), ids.len());
        println!("{name:<18} {} ids, {unique} of them unique", 2 * IDS);
        ensure!(
            (unique == 2 * IDS) == is_unique,
            "{way:?}: {unique} unique ids"
        );
    }

    // The next instance gets the number of one that has ended, and none of its ids.
    let number = one.number;
    one.held.release().await?;
    let next = Instance::start(url).await?;
    for _ in 0..IDS {
        let is_new = ids.insert(next.next_id(Way::InstanceAndCounter).await?);
        ensure!(is_new, "an id came back");
    }
    let (next, beside) = (next.number, other.number);
    println!("instance {number} ended, the next is {next}, beside it {beside}");
    ensure!(next == number && beside != number, "a number is not unique");
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Way {
    InstanceAndCounter,
    ProcessCounter,
    ServerCounter,
    Timestamp,
}

struct Instance {
    redis: MultiplexedConnection,
    number: u64,
    /// The lock on the number, renewed for as long as the instance lives.
    held: LockGuard,
    counter: AtomicU64,
}

impl Instance {
    async fn start(url: &str) -> Result<Self> {
        let locks = polylock::connect(url).await?;
        let (number, held) = draw_number(&*locks).await?;
        // The predecessor may have made ids of this second, by a clock that is ahead of this one.
        sleep(MAX_CLOCK_DIFFERENCE + Duration::from_secs(1)).await;
        let redis = redis::Client::open(url)?;
        Ok(Self {
            redis: redis.get_multiplexed_async_connection().await?,
            number,
            held,
            counter: AtomicU64::new(0),
        })
    }

    async fn next_id(&self, way: Way) -> Result<u64> {
        let seconds = SystemTime::UNIX_EPOCH.elapsed()?.as_secs() - EPOCH;
        let below = match way {
            Way::Timestamp => 0,
            Way::ProcessCounter => self.counter.fetch_add(1, Relaxed),
            Way::ServerCounter => self.redis.clone().incr("ids:orders", 1).await?,
            Way::InstanceAndCounter => {
                // A number that was lost may be another instance's.
                self.held.ensure_held()?;
                let bits = COUNTER_BITS - INSTANCE_BITS;
                (self.number << bits) | (self.counter.fetch_add(1, Relaxed) % (1 << bits))
            }
        };
        Ok(seconds << COUNTER_BITS | below)
    }
}

/// Draws the first number that no other instance holds.
async fn draw_number(locks: &dyn DistributedLock) -> Result<(u64, LockGuard)> {
    for number in 0..1 << INSTANCE_BITS {
        let request = locks.request(format!("instance/{number}")).ttl(TTL);
        // It lasts for as long as the instance, not for an hour as by default.
        if let Some(held) = request.max_hold(None).try_acquire().await? {
            return Ok((number, held));
        }
    }
    None.context("all numbers are taken")
}

/// Midnight of 1 January 2025. The 32 bits above the counter last for 136 years from it, in an `i64` for 68.
const EPOCH: u64 = 1_735_689_600;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn numbers_of_instances_make_ids_unique() -> Result<()> {
        run(&RedisServer::start(RedisOptions::new()).url()).await
    }
}
