//! How a share is given.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lock_tower::Locker;
use tokio::sync::Barrier;

use crate::table::{Left, Table};
use crate::{Protection, Result};

pub(crate) struct Server {
    /// Each server is connected to the locks by itself.
    pub(crate) locker: Option<Locker>,
    pub(crate) table: Table,
    pub(crate) opening: Arc<Opening>,
    pub(crate) chance: Chance,
}

impl Server {
    /// The share of a grabber: the one that it has already, a new one, or none.
    pub(crate) async fn grab(&self, envelope: &str, grabber: u32) -> Result<Option<i64>> {
        let Some(locker) = &self.locker else {
            return self.give(envelope, grabber).await;
        };
        let held = locker.lock(envelope).await?;
        let given = held.run(self.give(envelope, grabber)).await?;
        held.release().await?;
        given
    }

    /// Looks, draws, writes.
    async fn give(&self, envelope: &str, grabber: u32) -> Result<Option<i64>> {
        if let Some(cents) = self.table.share_of(envelope, grabber).await? {
            return Ok(Some(cents));
        }
        let left = self.table.look(envelope).await?;
        if left.shares <= 0 {
            return Ok(None);
        }
        self.opening.pass().await;
        let cents = double_average(left, self.chance.draw());
        let rest = Left {
            cents: left.cents - cents,
            shares: left.shares - 1,
        };
        self.table.give(envelope, grabber, cents, rest).await?;
        Ok(Some(cents))
    }
}

/// A share between one cent and twice the average, less one; the last one is the rest.
///
/// What is left is at least a cent for each other share: with an average of one or more,
/// `left - (2 * left / shares - 1)` is not less than `shares - 1`.
pub(crate) fn double_average(left: Left, random: u64) -> i64 {
    if left.shares == 1 {
        return left.cents;
    }
    let most = 2 * left.cents / left.shares - 1;
    // A remainder favours small numbers by less than one in 2^32: an envelope has fewer cents.
    1 + (random % most.unsigned_abs()) as i64
}

/// The moment between looking and writing. Where there is no lock, the first have all looked before
/// one of them writes: what goes wrong does not depend on luck.
pub(crate) struct Opening {
    pub(crate) first: Option<Barrier>,
    pub(crate) passed: AtomicU32,
}

impl Opening {
    pub(crate) fn new(protection: Protection) -> Self {
        Self {
            first: (protection == Protection::None).then(|| Barrier::new(FIRST as usize)),
            passed: AtomicU32::new(0),
        }
    }

    async fn pass(&self) {
        let number = self.passed.fetch_add(1, Ordering::Relaxed);
        if let Some(first) = self.first.as_ref().filter(|_| number < FIRST) {
            first.wait().await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Numbers that look random, and are the same for the same seed and the same order of draws.
pub(crate) struct Chance {
    pub(crate) seed: u64,
    pub(crate) draws: AtomicU64,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        let draws = AtomicU64::new(0);
        Self { seed, draws }
    }

    pub(crate) fn draw(&self) -> u64 {
        let draw = self.draws.fetch_add(1, Ordering::Relaxed);
        BuildHasherDefault::<DefaultHasher>::new().hash_one((self.seed, draw))
    }
}

/// Two of them may be the two tries of one grabber.
const FIRST: u32 = 3;
