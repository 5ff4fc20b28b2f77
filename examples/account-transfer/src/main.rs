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
//! - audits share an account, which no transfer changes meanwhile;
//! - a transfer may call a function that locks the same account, if both name one `Owner`;
//! - a job whose lease is not renewed stops in time for its last write.
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
use polylock::{FencingToken, Owner};
use tokio::sync::Barrier;
use tokio::time::{sleep, timeout};

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
    crossing(&branches).await?;
    audits_share(&branches).await?;
    owner_locks_again(&branches).await?;
    job_stops_in_time(&*branches[0]).await
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

/// Audits at two branches read an account together. No transfer changes it meanwhile, and none of them sees half
/// of a transfer.
async fn audits_share([here, there]: &[Arc<dyn DistributedLock>; 2]) -> Result<()> {
    let one = here.request(key(0)).shared().acquire().await?;
    let other = there.request(key(0)).shared().acquire().await?;
    let early = here.try_lock(key(0)).await?;
    ensure!(early.is_none(), "a transfer began during an audit");
    one.release().await?;
    other.release().await?;
    let transfer = here.lock(key(0)).await?;
    let late = there.request(key(0)).shared().try_acquire().await?;
    ensure!(late.is_none(), "an audit began during a transfer");
    transfer.release().await?;
    println!("audits: 2 at once, none beside a transfer");
    Ok(())
}

/// A function that holds a lock calls another one that acquires it.
async fn owner_locks_again([here, there]: &[Arc<dyn DistributedLock>; 2]) -> Result<()> {
    // Ownership is a value, not the thread or the task: pass it to the functions that may lock again.
    let owner = Owner::new();
    let guard = here.request(key(0)).owner(&owner).acquire().await?;
    let fee = charge_fee(&**here, &owner).await?;
    let is_same = fee.is_some() && fee == guard.fencing_token();
    ensure!(is_same, "the fee was charged under another lock");
    // The inner guard is gone; the lock stays held until the outer one is released.
    ensure!(guard.is_held(), "the inner guard released the lock");
    let other = charge_fee(&**there, &Owner::new()).await;
    let is_refused = other.is_err_and(|error| error.kind() == ErrorKind::Contended);
    ensure!(is_refused, "another owner got the lock");
    guard.release().await?;
    println!("owner: locked twice by one owner, refused to another");
    Ok(())
}

async fn charge_fee(
    locks: &dyn DistributedLock,
    owner: &Owner,
) -> polylock::Result<Option<FencingToken>> {
    let request = locks.request(key(0)).owner(owner);
    let wait = Wait::AtMost(Duration::from_millis(100));
    let guard = request.wait(wait).acquire().await?;
    let token = guard.fencing_token();
    guard.release().await?;
    Ok(token)
}

/// Adds interest until the rest of the lease is just enough to write it down.
async fn job_stops_in_time(locks: &dyn DistributedLock) -> Result<()> {
    const LEASE: Duration = Duration::from_secs(2);
    const WRITING: Duration = Duration::from_secs(1);
    let request = locks.request("interest").ttl(LEASE).manual_renewal();
    let guard = request.acquire().await?;
    let mut accounts = 0;
    loop {
        tokio::select! {
            biased;
            () = guard.expiring(WRITING) => break,
            () = sleep(Duration::from_millis(20)) => accounts += 1,
        }
    }
    // It takes less than was set aside for it.
    sleep(WRITING / 4).await;
    guard.ensure_held()?;
    ensure!(accounts > 0, "no time for one account");
    println!("interest: {accounts} accounts, written while the lock was held");
    guard.release().await?;
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
        sleep(Duration::from_millis(1)).await;
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
