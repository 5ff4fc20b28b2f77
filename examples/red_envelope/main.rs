//! A red envelope: an amount of money for a group; whoever comes first gets a random share of it.
//!
//! ```console
//! $ cargo run -p polylock-examples --example red_envelope
//! $ cargo run -p polylock-examples --example red_envelope -- --backend redis://localhost
//! ```
//!
//! The shares follow the "double average" rule: each is drawn from one cent to twice the average of
//! what is left, so that all have the same expectation and none is empty. A share is given in three
//! steps on the tables of a database: look, draw, write; everybody grabs twice, at two servers at
//! once, and there are more of them than shares. One lock per envelope makes one step of the three.
//!
//! Exits with 0 if with the lock the sum is exact, nobody has two shares and late comers have none,
//! and if without it more money is paid than was put in.

mod outcome;
mod server;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use lock_tower::Locker;
use tokio::task::JoinSet;

use crate::outcome::Outcome;
use crate::server::{Chance, Opening, Server};
use crate::table::Table;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

#[derive(Clone, Debug, Parser)]
struct Args {
    /// Where the locks are, a URL that all servers share.
    #[arg(long, default_value = "memory:red-envelope")]
    backend: String,
    /// What is in the envelope, in cents.
    #[arg(long, default_value_t = 8888)]
    cents: u32,
    /// How many get some of it.
    #[arg(long, default_value_t = 20)]
    shares: u32,
    /// How many would like to.
    #[arg(long, default_value_t = 50)]
    grabbers: u32,
    /// What the shares are drawn with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let [unlocked, locked] = play_both(&args).await?;
    let mut out = io::stdout().lock();
    let (grabbers, shares) = (args.grabbers, args.shares);
    writeln!(
        out,
        "{grabbers} grab twice, for {shares} shares of {} cents",
        args.cents
    )?;
    writeln!(out, "without a lock: {unlocked}")?;
    writeln!(out, "with a lock:    {locked}")?;
    if unlocked.sum() <= i64::from(args.cents) {
        return Err("without the lock no more was paid than was put in".into());
    }
    match locked.faults(&args).as_slice() {
        [] => Ok(()),
        faults => Err(faults.join("; ").into()),
    }
}

/// One envelope that nothing protects, and one with a lock.
async fn play_both(args: &Args) -> Result<[Outcome; 2]> {
    if args.shares < 3 || args.grabbers <= args.shares || args.cents < args.shares {
        return Err("an envelope has three shares, a cent for each, and more who want one".into());
    }
    let directory = tempfile::tempdir()?;
    let table = Table::open(&directory.path().join("envelopes.db")).await?;
    let outcomes = [
        play(args, &table, Protection::None).await?,
        play(args, &table, Protection::Lock).await?,
    ];
    table.pool.close().await;
    Ok(outcomes)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Protection {
    Lock,
    None,
}

/// Lets everybody grab twice, and asks the table what became of it.
async fn play(args: &Args, table: &Table, protection: Protection) -> Result<Outcome> {
    let envelope = match protection {
        Protection::Lock => "locked",
        Protection::None => "unlocked",
    };
    table.put(envelope, args.cents, args.shares).await?;
    let opening = Arc::new(Opening::new(protection));
    let mut servers = Vec::new();
    for number in 0..SERVERS {
        servers.push(Arc::new(Server {
            locker: match protection {
                Protection::Lock => Some(locker(&args.backend).await?),
                Protection::None => None,
            },
            table: table.clone(),
            opening: Arc::clone(&opening),
            chance: Chance::new(args.seed.wrapping_add(number)),
        }));
    }
    let mut grabs = JoinSet::new();
    for (grabber, try_number) in (0..args.grabbers).flat_map(|grabber| [(grabber, 0), (grabber, 1)])
    {
        let server = Arc::clone(&servers[(grabber as usize + try_number) % servers.len()]);
        grabs.spawn(async move { Ok((grabber, server.grab(envelope, grabber).await?)) });
    }
    let mut told = BTreeMap::<u32, Vec<Option<i64>>>::new();
    for grab in grabs
        .join_all()
        .await
        .into_iter()
        .collect::<Result<Vec<_>>>()?
    {
        told.entry(grab.0).or_default().push(grab.1);
    }
    Ok(Outcome {
        told,
        paid: table.paid(envelope).await?,
        left: table.look(envelope).await?,
    })
}

async fn locker(backend: &str) -> Result<Locker> {
    let locks = polylock::connect(backend).await?;
    let locker = Locker::builder(locks, "red-envelope")
        .wait(Duration::from_secs(30))
        .max_waiters_per_key(1000);
    Ok(locker.build()?)
}

const SERVERS: u64 = 3;
