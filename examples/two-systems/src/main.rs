//! Money moves from a bank to a shop: two systems without a common transaction, each with its own locks.
//!
//! ```console
//! $ cargo run -p two-systems
//! $ cargo run -p two-systems --features polylock/redis,polylock/postgres -- \
//!     'postgres://localhost/bank?mode=lease' redis://localhost
//! ```
//!
//! A transfer holds the locks of a customer in both. With the debit the bank records what it sends, with
//! the credit the shop what it has received: the next holder completes what a crash or a loss has left.
//!
//! Limits:
//!
//! - Two writes are no atomic commit. In between the money is on its way, until somebody has both locks.
//! - A token protects the system that it comes from. The tokens of two systems have no order: the shop
//!   can refuse a late credit, and knows nothing of a late debit.
//! - If one lease is lost, `MultiGuard::run` stops the work, and the other lock is released. A write that
//!   was sent before may still arrive; only its token stops it.
//! - Locks repeat nothing: the number of the transfer makes its credit happen once.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use polylock::prelude::*;
use polylock::{AcquireRequest, FencingToken, MultiGuard};
use tokio::task::JoinSet;
use tokio::time::sleep;

const CUSTOMERS: usize = 4;
const BALANCE: i64 = 2_000;
const TOTAL: i64 = 2 * BALANCE * CUSTOMERS as i64;
const TRANSFERS: usize = 200;
/// One of so many transfers crashes between its two writes.
const CRASH_EVERY: usize = 25;
const TTL: Duration = Duration::from_secs(10);
/// How long the next holder waits after a crash.
const CRASH_TTL: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<()> {
    let urls: Vec<_> = std::env::args().skip(1).collect();
    let urls = match urls.len() {
        0 => None,
        _ => Some(urls.try_into().ok().context("pass two URLs or none")?),
    };
    run(urls).await
}

async fn run(urls: Option<[String; 2]>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = format!("sqlite:{}", dir.path().join("bank-locks").display());
    let [bank, shop] = urls.unwrap_or_else(|| [file, "memory:shop".to_owned()]);
    let [in_bank, in_shop] = [rows(), rows()];
    // Two instances, each connected to both services like a process of its own.
    let connect = async || {
        let bank = System::connect(&bank, &in_bank).await?;
        let shop = System::connect(&shop, &in_shop).await?;
        anyhow::Ok(Systems { bank, shop })
    };
    let instances = [connect().await?, connect().await?];
    contention_and_crashes(&instances).await?;
    lost_lease(&instances[0]).await?;
    late_write(&instances[0]).await
}

async fn contention_and_crashes(instances: &[Systems; 2]) -> Result<()> {
    let both = &instances[0];
    let mut transfers = JoinSet::new();
    for n in 0..TRANSFERS {
        let both = instances[n / CUSTOMERS % 2].clone();
        transfers.spawn(async move {
            match n % CRASH_EVERY {
                0 => both.crash(n % CUSTOMERS).await.map(drop),
                _ => both.transfer(n % CUSTOMERS, 5, Duration::ZERO).await,
            }
        });
    }
    while let Some(done) = transfers.join_next().await {
        done??;
    }
    for customer in 0..CUSTOMERS {
        both.transfer(customer, 0, Duration::ZERO).await?;
    }
    let crashes = TRANSFERS.div_ceil(CRASH_EVERY);
    both.tell(&format!("{TRANSFERS} transfers, {crashes} crashed"));
    let arrived = both.shop.sum() - TOTAL / 2;
    ensure!(both.sum() == TOTAL, "money was lost or made");
    ensure!(arrived == 5 * TRANSFERS as i64, "a transfer was lost");
    Ok(())
}

/// An operator breaks the lock in the shop while a transfer is between its two writes.
async fn lost_lease(both: &Systems) -> Result<()> {
    let breaking = async {
        while both.sum() == TOTAL {
            sleep(Duration::from_millis(5)).await;
        }
        let admin = both.shop.locks.admin().context("no administration")?;
        anyhow::Ok(admin.break_lock(&key(0)?, "by the operator").await?)
    };
    let transfer = async {
        let done = both.transfer(0, 100, Duration::MAX).await;
        let error = done.err().context("it did not notice")?;
        // Before its first write it failed for another reason, and nobody breaks the lock.
        if both.sum() == TOTAL {
            Err(error)
        } else {
            Ok(error)
        }
    };
    let (error, _) = tokio::try_join!(transfer, breaking)?;
    both.tell(&error.to_string());
    both.transfer(0, 0, Duration::ZERO).await?;
    both.tell("the next holder completes it");
    ensure!(both.sum() == TOTAL, "it did not");
    Ok(())
}

/// A holder is paused before its credit until its leases have ended and the next one has moved money.
async fn late_write(both: &Systems) -> Result<()> {
    let (late, token) = (both.shop.row(0), both.crash(0).await?);
    both.transfer(0, 10, Duration::ZERO).await?;
    let written = both.shop.write(0, late, token);
    both.tell("a late write is refused by its token");
    ensure!(written.is_err() && both.sum() == TOTAL, "it is not");
    Ok(())
}

#[derive(Clone)]
struct Systems {
    bank: System,
    shop: System,
}

type Token = Option<FencingToken>;

impl Systems {
    /// Moves money under both locks, with a pause between the two writes.
    async fn transfer(&self, customer: usize, cents: i64, pause: Duration) -> Result<()> {
        let (both, tokens) = self.lock(customer, TTL).await?;
        let both = MultiGuard::new(both.into());
        // Stops at an await as soon as one of the locks is lost.
        let done = both.run(async {
            self.debit(customer, cents, tokens)?;
            sleep(pause).await;
            self.credit(customer, tokens[1])
        });
        done.await??;
        both.release().await?;
        Ok(())
    }

    /// A process is killed between the two writes: both leases end by themselves. Its token of the shop.
    async fn crash(&self, customer: usize) -> Result<Token> {
        let (both, tokens) = self.lock(customer, CRASH_TTL).await?;
        self.debit(customer, 5, tokens)?;
        both.into_iter().for_each(LockGuard::abandon);
        Ok(tokens[1])
    }

    /// Everybody locks the bank first, so that no two block each other.
    async fn lock(&self, customer: usize, ttl: Duration) -> Result<([LockGuard; 2], [Token; 2])> {
        let request = AcquireRequest::new(key(customer)?).with_ttl(ttl);
        let bank = self.bank.locks.acquire(&request).await?;
        let both = [bank, self.shop.locks.acquire(&request).await?];
        let tokens = both.each_ref().map(LockGuard::fencing_token);
        Ok((both, tokens))
    }

    /// Completes the transfer before, and writes what the bank has left and what it sends.
    fn debit(&self, customer: usize, cents: i64, tokens: [Token; 2]) -> Result<()> {
        self.credit(customer, tokens[1])?;
        let mut row = self.bank.row(customer);
        (row.balance, row.number, row.cents) = (row.balance - cents, row.number + 1, cents);
        self.bank.write(customer, row, tokens[0])
    }

    /// Credits the last transfer of the bank, unless the shop has received it.
    fn credit(&self, customer: usize, token: Token) -> Result<()> {
        let (sent, mut row) = (self.bank.row(customer), self.shop.row(customer));
        if row.number < sent.number {
            (row.balance, row.number) = (row.balance + sent.cents, sent.number);
            self.shop.write(customer, row, token)?;
        }
        Ok(())
    }

    fn sum(&self) -> i64 {
        self.bank.sum() + self.shop.sum()
    }

    fn tell(&self, what: &str) {
        println!("{what}: {} cents of {TOTAL}", self.sum());
    }
}

fn key(customer: usize) -> polylock::Result<LockKey> {
    LockKey::new(format!("customer/{customer}"))
}

/// A bank or a shop: its locks, and a row for each customer.
#[derive(Clone)]
struct System {
    locks: Arc<dyn DistributedLock>,
    rows: Rows,
}

type Rows = Arc<Mutex<[Row; CUSTOMERS]>>;

#[derive(Clone, Copy, Default)]
struct Row {
    balance: i64,
    /// Number of the last transfer that was sent or received.
    number: u64,
    /// What the bank has sent with it.
    cents: i64,
    /// The largest token that has written the row.
    token: Token,
}

impl System {
    async fn connect(url: &str, rows: &Rows) -> Result<Self> {
        let (locks, rows) = (polylock::connect(url).await?, Arc::clone(rows));
        Ok(Self { locks, rows })
    }

    fn row(&self, customer: usize) -> Row {
        self.rows.lock().expect("nobody panics with it")[customer]
    }

    /// In SQL: `UPDATE rows SET .., token = $1 WHERE customer = $2 AND token <= $1`.
    fn write(&self, customer: usize, row: Row, token: Token) -> Result<()> {
        let mut rows = self.rows.lock().expect("nobody panics with it");
        ensure!(token >= rows[customer].token, "its token is stale");
        rows[customer] = Row { token, ..row };
        Ok(())
    }

    fn sum(&self) -> i64 {
        (0..CUSTOMERS)
            .map(|customer| self.row(customer).balance)
            .sum()
    }
}

fn rows() -> Rows {
    let row = Row {
        balance: BALANCE,
        ..Row::default()
    };
    Arc::new(Mutex::new([row; CUSTOMERS]))
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn no_cent_is_lost_or_made() -> anyhow::Result<()> {
        super::run(None).await
    }
}
