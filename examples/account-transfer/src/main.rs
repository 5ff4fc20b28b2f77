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
//!   not with `lock_all`, which sorts the keys;
//! - a late write is refused by the fencing token of one account and changes neither.
//!
//! Accounts in one database need no such locks: `SELECT .. FOR UPDATE` in one order does it.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use polylock::fencing::StaleToken;
use polylock::prelude::*;
use polylock::{FencingToken, MultiGuard};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const ACCOUNTS: usize = 8;
const BALANCE: i64 = 1000;
const TOTAL: i64 = BALANCE * ACCOUNTS as i64;
const TRANSFERS: usize = 400;
/// A transfer takes milliseconds unless it waits for one that waits for it.
const SHORT_WAIT: Duration = Duration::from_secs(1);

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
    crossing(&branches).await?;
    late_write(&branches).await
}

/// Two transfers share account 0, and both have read before one of them writes.
async fn without_locks() -> Result<()> {
    let (bank, both_have_read) = (Bank::new(), Barrier::new(2));
    let transfer = async |from, to| {
        let write = bank.plan(from, to, 100, None)?;
        both_have_read.wait().await;
        Ok::<_, anyhow::Error>(bank.write(write)?)
    };
    tokio::try_join!(transfer(0, 1), transfer(2, 0))?;
    let sum = bank.sum();
    println!("without locks   2 transfers, {sum} cents of {TOTAL}");
    ensure!(sum != TOTAL, "no update was lost without locks");
    Ok(())
}

async fn with_locks(branches: &[Arc<dyn DistributedLock>; 2]) -> Result<()> {
    let bank = Arc::new(Bank::new());
    let mut transfers = JoinSet::new();
    for n in 0..TRANSFERS {
        let (bank, locks) = (Arc::clone(&bank), Arc::clone(&branches[n % 2]));
        let (from, to) = (n % ACCOUNTS, (n * 3 + 1) % ACCOUNTS);
        transfers.spawn(async move { transfer(&bank, &*locks, from, to).await });
    }
    while let Some(done) = transfers.join_next().await {
        done??;
    }
    let sum = bank.sum();
    println!("with locks      {TRANSFERS} transfers, {sum} cents of {TOTAL}");
    ensure!(sum == TOTAL, "money was lost with locks");
    Ok(())
}

async fn transfer(bank: &Bank, locks: &dyn DistributedLock, from: usize, to: usize) -> Result<()> {
    // All or nothing, in the order of the keys, within one timeout.
    let held = locks.lock_all([key(from)?, key(to)?]).await?;
    let write = bank.plan(from, to, 10, Some(&held))?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    bank.write(write)?;
    held.release().await?;
    Ok(())
}

/// The same pair of crossing transfers with the locks in the order of the money, and sorted.
async fn crossing([here, there]: &[Arc<dyn DistributedLock>; 2]) -> Result<()> {
    let both_hold_one = Barrier::new(2);
    let from_first = async |locks: &Arc<dyn DistributedLock>, from, to| {
        let _from = locks.lock(key(from)?).await?;
        both_hold_one.wait().await;
        let _to = locks.lock_within(key(to)?, SHORT_WAIT).await?;
        anyhow::Ok(())
    };
    let (one, other) = tokio::join!(from_first(here, 0, 1), from_first(there, 1, 0));
    let timed_out = [one, other].into_iter().filter(is_contended).count();
    println!("crossing        locked from first: {timed_out} of 2 timed out after {SHORT_WAIT:?}");
    ensure!(timed_out > 0, "crossing transfers did not block each other");

    let bank = Bank::new();
    tokio::try_join!(transfer(&bank, here, 0, 1), transfer(&bank, there, 1, 0))?;
    println!("crossing        locked with lock_all: 0 of 2 timed out");
    Ok(())
}

fn is_contended(done: &Result<()>) -> bool {
    let kind = |error: &anyhow::Error| error.downcast_ref().map(Error::kind);
    done.as_ref().err().and_then(kind) == Some(ErrorKind::Contended)
}

/// A transfer is delayed on its way to the database; meanwhile its locks end, and another transfer
/// uses one of its accounts. A holder that was paused for longer than its lease looks the same.
async fn late_write([here, there]: &[Arc<dyn DistributedLock>; 2]) -> Result<()> {
    let bank = Bank::new();
    let held = here.lock_all([key(0)?, key(1)?]).await?;
    let late = bank.plan(0, 1, 100, Some(&held))?;
    held.release().await?;
    transfer(&bank, there, 1, 2).await?;
    let before = bank.balances();
    let refused = bank.write(late).err().context("it was accepted")?;
    println!("late write      refused: {refused}");
    ensure!(bank.balances() == before, "half of it was accepted");
    Ok(())
}

fn key(account: usize) -> polylock::Result<LockKey> {
    LockKey::new(format!("account/{account}"))
}

/// The database: for each account its balance, and the largest token that has written it.
struct Bank(Mutex<Vec<(i64, FencingToken)>>);

type Write = [(usize, i64, FencingToken); 2];

impl Bank {
    fn new() -> Self {
        Self(Mutex::new(vec![(BALANCE, FencingToken::new(0)); ACCOUNTS]))
    }

    fn balances(&self) -> Vec<i64> {
        let accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.iter().map(|(balance, _)| *balance).collect()
    }

    fn sum(&self) -> i64 {
        self.balances().iter().sum()
    }

    /// Reads both balances and returns what to write. Each account has a token of its own.
    fn plan(&self, from: usize, to: usize, cents: i64, held: Option<&MultiGuard>) -> Result<Write> {
        let token = |account| match held {
            Some(held) => held.fencing_token(&key(account)?).context("no tokens"),
            None => Ok(FencingToken::new(0)),
        };
        let balances = self.balances();
        Ok([
            (from, balances[from] - cents, token(from)?),
            (to, balances[to] + cents, token(to)?),
        ])
    }

    /// Writes both balances or none. In SQL, a transaction with two of
    /// `UPDATE accounts SET balance = $2, fence = $3 WHERE id = $1 AND fence <= $3`.
    fn write(&self, write: Write) -> Result<(), StaleToken> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((account, _, token)) = write.iter().find(|(id, _, t)| *t < accounts[*id].1) {
            let stale = StaleToken::new(format!("account/{account}"), *token);
            return Err(stale.with_newest(accounts[*account].1));
        }
        for (account, balance, token) in write {
            accounts[account] = (balance, token);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn locks_keep_the_sum_and_tokens_refuse_late_writes() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
