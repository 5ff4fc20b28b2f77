//! Transfers between accounts: each has two locks, and takes them in one order for everybody.
//!
//! ```console
//! $ cargo run -p polylock-examples --example account_transfer
//! $ cargo run -p polylock-examples --example account_transfer -- --backend redis://localhost
//! ```
//!
//! A transfer looks at two balances, thinks, and writes both. Three things are shown:
//!
//! - A rush of random transfers keeps the sum of all balances with locks, and not without.
//! - Transfers that cross (from A to B, and from B to A) wait for each other if each locks its
//!   `from` first, until a wait is over; with `Locker::lock_all`, which sorts the keys, none does.
//! - A transfer that arrives late is refused by the token of one of its accounts, and leaves the
//!   other as it is too.
//!
//! Exits with 0 if that is so. Accounts in one database need no such locks: `SELECT .. FOR UPDATE`
//! in the same order does it. They are for accounts that are not.

mod bank;
mod report;
mod scenes;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use clap::Parser;

use crate::bank::Bank;
use crate::report::Shown;
use crate::scenes::{Branches, Order, arrive_late, cross, rush};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

#[derive(Clone, Debug, Parser)]
struct Args {
    /// Where the locks are, a URL that all branches share.
    #[arg(long, default_value = "memory:account-transfer")]
    backend: String,
    /// How many send money at a time.
    #[arg(long, default_value_t = 16)]
    tasks: u32,
    /// How many transfers each makes.
    #[arg(long, default_value_t = 25)]
    transfers: u32,
    /// What the transfers are drawn with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let shown = show(&Args::parse()).await?;
    write!(io::stdout().lock(), "{shown}")?;
    match shown.broken_claims().as_slice() {
        [] => Ok(()),
        broken => Err(broken.join("; ").into()),
    }
}

async fn show(args: &Args) -> Result<Shown> {
    let directory = tempfile::tempdir()?;
    let branches = Branches::open(&args.backend, LONG_WAIT).await?;
    let hasty = Branches::open(&args.backend, SHORT_WAIT).await?;
    let bank = |name: &str| Bank::open(directory.path().join(name));
    Ok(Shown {
        unlocked: rush(args, &bank("unlocked").await?, None).await?,
        locked: rush(args, &bank("locked").await?, Some(&branches)).await?,
        naive: cross(&bank("naive").await?, &hasty, Order::FromFirst).await?,
        sorted: cross(&bank("sorted").await?, &hasty, Order::Sorted).await?,
        late: arrive_late(&bank("late").await?, &branches).await?,
    })
}

const LONG_WAIT: Duration = Duration::from_secs(30);
/// As long as nobody waits for somebody who waits, a transfer takes some milliseconds.
const SHORT_WAIT: Duration = Duration::from_secs(2);
