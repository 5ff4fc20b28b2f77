//! A red envelope: an amount of money for a group, of which whoever comes first gets a random share.
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

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::Parser;
use lock_tower::Locker;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Executor as _, SqlitePool};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

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
    match (unlocked.faults(&args).is_empty(), locked.faults(&args)) {
        (true, _) => Err("nothing went wrong without the lock".into()),
        (false, faults) if faults.is_empty() => Ok(()),
        (false, faults) => Err(faults.join("; ").into()),
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

struct Server {
    /// Each server is connected to the locks by itself.
    locker: Option<Locker>,
    table: Table,
    opening: Arc<Opening>,
    chance: Chance,
}

impl Server {
    /// The share of a grabber: the one that it has already, a new one, or none.
    async fn grab(&self, envelope: &str, grabber: u32) -> Result<Option<i64>> {
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
fn double_average(left: Left, random: u64) -> i64 {
    if left.shares == 1 {
        return left.cents;
    }
    let most = 2 * left.cents / left.shares - 1;
    // A remainder favours small numbers by less than one in 2^32: an envelope has fewer cents.
    1 + (random % most.unsigned_abs()) as i64
}

/// The moment between looking and writing. Where there is no lock, the first have all looked before
/// one of them writes: what goes wrong does not depend on luck.
struct Opening {
    first: Option<Barrier>,
    passed: AtomicU32,
}

impl Opening {
    fn new(protection: Protection) -> Self {
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

/// What is in an envelope.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Left {
    cents: i64,
    shares: i64,
}

/// Envelopes and shares in SQLite.
#[derive(Clone)]
struct Table {
    pool: SqlitePool,
}

impl Table {
    async fn open(file: &Path) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(30));
        let pool = SqlitePoolOptions::new().connect_with(options).await?;
        pool.execute(
            "CREATE TABLE envelopes (name TEXT PRIMARY KEY, cents INTEGER, shares INTEGER);
             CREATE TABLE shares (envelope TEXT, grabber INTEGER, cents INTEGER)",
        )
        .await?;
        Ok(Self { pool })
    }

    async fn put(&self, envelope: &str, cents: u32, shares: u32) -> Result<()> {
        let put = sqlx::query("INSERT INTO envelopes VALUES (?, ?, ?)").bind(envelope);
        put.bind(cents).bind(shares).execute(&self.pool).await?;
        Ok(())
    }

    async fn look(&self, envelope: &str) -> Result<Left> {
        let look = sqlx::query_as("SELECT cents, shares FROM envelopes WHERE name = ?");
        let (cents, shares) = look.bind(envelope).fetch_one(&self.pool).await?;
        Ok(Left { cents, shares })
    }

    async fn share_of(&self, envelope: &str, grabber: u32) -> Result<Option<i64>> {
        let sql = "SELECT cents FROM shares WHERE envelope = ? AND grabber = ?";
        let share = sqlx::query_scalar(sql).bind(envelope).bind(grabber);
        Ok(share.fetch_optional(&self.pool).await?)
    }

    /// One transaction: it cannot be interrupted, and is too late all the same.
    async fn give(&self, envelope: &str, grabber: u32, cents: i64, rest: Left) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        sqlx::query("UPDATE envelopes SET cents = ?, shares = ? WHERE name = ?")
            .bind(rest.cents)
            .bind(rest.shares)
            .bind(envelope)
            .execute(&mut *tx)
            .await?;
        sqlx::query("INSERT INTO shares VALUES (?, ?, ?)")
            .bind(envelope)
            .bind(grabber)
            .bind(cents)
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    async fn paid(&self, envelope: &str) -> Result<Vec<(u32, i64)>> {
        let sql = "SELECT grabber, cents FROM shares WHERE envelope = ?";
        let paid = sqlx::query_as(sql).bind(envelope);
        Ok(paid.fetch_all(&self.pool).await?)
    }
}

/// What everybody was told, and what the table says in the end.
#[derive(Debug)]
struct Outcome {
    told: BTreeMap<u32, Vec<Option<i64>>>,
    paid: Vec<(u32, i64)>,
    left: Left,
}

impl Outcome {
    fn sum(&self) -> i64 {
        self.paid.iter().map(|(_, cents)| cents).sum()
    }

    fn paid_twice(&self) -> usize {
        let mut shares = BTreeMap::new();
        for (grabber, _) in &self.paid {
            *shares.entry(grabber).or_insert(0) += 1;
        }
        shares.values().filter(|shares| **shares > 1).count()
    }

    /// What a fair host would not do.
    fn faults(&self, args: &Args) -> Vec<String> {
        let total = i64::from(args.cents);
        let told_one_thing = |told: &&Vec<Option<i64>>| told.iter().any(|other| *other != told[0]);
        let contradicted = self.told.values().filter(told_one_thing).count();
        let empty = self.paid.iter().filter(|(_, cents)| *cents < 1).count();
        let mut faults = Vec::new();
        let mut claim = |holds: bool, fault: String| {
            if !holds {
                faults.push(fault);
            }
        };
        claim(
            self.sum() == total,
            format!("{} of {total} cents are paid", self.sum()),
        );
        claim(
            self.paid.len() == args.shares as usize,
            format!("{} shares", self.paid.len()),
        );
        claim(
            self.paid_twice() == 0,
            format!("{} have two shares", self.paid_twice()),
        );
        claim(
            contradicted == 0,
            format!("{contradicted} were told two things"),
        );
        claim(empty == 0, format!("{empty} shares are empty"));
        claim(
            self.left
                == Left {
                    cents: 0,
                    shares: 0,
                },
            format!("left: {:?}", self.left),
        );
        faults
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = || self.paid.iter().map(|(_, cents)| *cents);
        write!(
            f,
            "{} shares of {} to {} cents, {} cents in all, {} left, {} grabbers paid twice",
            self.paid.len(),
            cents().min().unwrap_or(0),
            cents().max().unwrap_or(0),
            self.sum(),
            self.left.cents,
            self.paid_twice(),
        )
    }
}

/// Random numbers that are the same for the same seed and the same order of draws (splitmix64).
struct Chance(std::sync::atomic::AtomicU64);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(STEP).into())
    }

    fn draw(&self) -> u64 {
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const SERVERS: u64 = 3;
/// Two of them may be the two tries of one grabber.
const FIRST: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn pays_what_was_put_in_to_twenty_people() {
        let args = Args::parse_from(["red_envelope"]);
        let [unlocked, locked] = play_both(&args).await.unwrap();
        assert_eq!(locked.faults(&args), Vec::<String>::new(), "{locked}");
        assert_eq!(
            (locked.sum(), locked.paid.len(), locked.paid_twice()),
            (8888, 20, 0)
        );
        // Of fifty who tried twice, thirty came too late, and were told so twice.
        let late = locked.told.values().filter(|told| **told == [None, None]);
        assert_eq!(late.count(), 30);

        let paid = unlocked.sum() + unlocked.left.cents;
        assert!(paid > 8888, "{paid} cents: {unlocked}");
        assert!(!unlocked.faults(&args).is_empty());
    }

    #[test]
    fn every_envelope_is_shared_to_the_last_cent() {
        let chance = Chance::new(7);
        for total in 1..=200 {
            for shares in 1..=total.min(40) {
                let mut left = Left {
                    cents: total,
                    shares,
                };
                while left.shares > 0 {
                    let most = 2 * left.cents / left.shares;
                    let cents = double_average(left, chance.draw());
                    assert!(
                        cents >= 1 && (left.shares == 1 || cents < most.max(2)),
                        "{left:?}"
                    );
                    left.cents -= cents;
                    left.shares -= 1;
                    assert!(left.cents >= left.shares, "{left:?} of {total}");
                }
                assert_eq!(left.cents, 0);
            }
        }
    }

    #[test]
    fn shares_have_the_same_expectation_wherever_in_the_queue() {
        let chance = Chance::new(7);
        let mut sums = [0; 4];
        for _ in 0..20_000 {
            let mut left = Left {
                cents: 400,
                shares: 4,
            };
            for sum in &mut sums {
                let cents = double_average(left, chance.draw());
                *sum += cents;
                left.cents -= cents;
                left.shares -= 1;
            }
        }
        for sum in sums {
            assert!((98..=102).contains(&(sum / 20_000)), "{sums:?}");
        }
    }
}
