//! Transfers between accounts: a transfer holds the locks of both accounts.
//!
//! ```console
//! $ cargo run -p account-transfer
//! $ cargo run -p account-transfer --features polylock/redis -- redis://localhost
//! ```
//!
//! A transfer reads two balances, thinks, and writes both. The program shows that
//!
//! - money appears or disappears without locks, and does not with them;
//! - transfers that cross (A to B, B to A) block each other when each locks its `from` first, and do
//!   not with `lock_all`, which sorts the keys.
//!
//! Accounts in one database need no such locks: `SELECT .. FOR UPDATE` in one order does it. Each account has
//! a fencing token of its own, `MultiGuard::fencing_token`; `zombie-writer` shows what a token refuses.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use polylock::prelude::*;
use tokio::sync::Barrier;
use tokio::time::timeout;

const ACCOUNTS: usize = 8;
const BALANCE: i64 = 1000;
const TOTAL: i64 = BALANCE * ACCOUNTS as i64;
const TRANSFERS: usize = 400;
/// A transfer takes milliseconds unless it waits for one that waits for it.
const SHORT_WAIT: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(40);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    run(url.as_deref().unwrap_or("memory:account-transfer")).await
}

async fn run(url: &str) -> Result<()> {
    // Two branches of the bank, each connected like a process of its own.
    let branches = [polylock::connect(url).await?, polylock::connect(url).await?];
    without_locks().await?;
    with_locks(&branches).await?;
    crossing(&branches).await
}

/// Two transfers share account 0, and both have read before one of them writes.
async fn without_locks() -> Result<()> {
    let bank = Bank::new();
    tokio::join!(bank.transfer(0, 1), bank.transfer(2, 0));
    let sum = bank.sum();
    println!("without locks: 2 transfers, {sum} cents of {TOTAL}");
    ensure!(sum != TOTAL, "no update was lost without locks");
    Ok(())
}

async fn with_locks(branches: &[Arc<dyn DistributedLock>; 2]) -> Result<()> {
    let bank = Bank::new();
    let transfers = (0..TRANSFERS).map(|n| {
        let (from, to) = (n % ACCOUNTS, (n * 3 + 1) % ACCOUNTS);
        locked_transfer(&bank, &*branches[n % 2], from, to)
    });
    try_join_all(transfers).await?;
    let sum = bank.sum();
    println!("with locks: {TRANSFERS} transfers, {sum} cents of {TOTAL}");
    ensure!(sum == TOTAL, "money was lost with locks");
    Ok(())
}

async fn locked_transfer(
    bank: &Bank,
    locks: &dyn DistributedLock,
    from: usize,
    to: usize,
) -> polylock::Result<()> {
    // All or nothing, in the order of the keys, within one timeout.
    let both = locks.lock_all([key(from), key(to)]).await?;
    // Stops at the next await point if one of the locks is lost.
    both.run(bank.transfer(from, to)).await?;
    both.release().await?;
    Ok(())
}

/// The same pair of crossing transfers twice: once locking `from` first, once in the order of `lock_all`.
async fn crossing([here, there]: &[Arc<dyn DistributedLock>; 2]) -> Result<()> {
    let both_hold_one = Barrier::new(2);
    let from_first = async |locks: &Arc<dyn DistributedLock>, from, to| {
        let _from = locks.lock(key(from)).await?;
        both_hold_one.wait().await;
        match locks.lock_within(key(to), SHORT_WAIT).await {
            Err(error) if error.kind() == ErrorKind::Contended => Ok(true),
            locked => locked.map(|_| false),
        }
    };
    let both = async { tokio::try_join!(from_first(here, 0, 1), from_first(there, 1, 0)) };
    let (one, other) = timeout(TIMEOUT, both).await??;
    let timed_out = usize::from(one) + usize::from(other);
    println!("crossing: locked from first, {timed_out} of 2 timed out after {SHORT_WAIT:?}");
    ensure!(timed_out > 0, "crossing transfers did not block each other");

    let bank = Bank::new();
    let one = locked_transfer(&bank, here, 0, 1);
    let other = locked_transfer(&bank, there, 1, 0);
    tokio::try_join!(one, other)?;
    println!("crossing: locked with lock_all, 0 of 2 timed out");
    Ok(())
}

fn key(account: usize) -> String {
    format!("account/{account}")
}

/// The database, with a balance for each account.
struct Bank([AtomicI64; ACCOUNTS]);

impl Bank {
    fn new() -> Self {
        Self(array::from_fn(|_| AtomicI64::new(BALANCE)))
    }

    fn sum(&self) -> i64 {
        self.0.iter().map(|balance| balance.load(Relaxed)).sum()
    }

    /// Reads both balances, thinks, and writes both: another transfer must not come in between.
    async fn transfer(&self, from: usize, to: usize) {
        let [from, to] = [&self.0[from], &self.0[to]];
        let (before_from, before_to) = (from.load(Relaxed), to.load(Relaxed));
        tokio::time::sleep(Duration::from_millis(1)).await;
        from.store(before_from - 10, Relaxed);
        to.store(before_to + 10, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn locks_keep_the_sum() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
