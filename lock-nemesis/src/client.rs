//! A client process: acquires, holds and releases locks, and is a candidate of an election, until it is
//! killed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lock_testkit::history::{Recorded, Recorder};
use lock_testkit::sim::Rng;
use polylock::coordination::Election;
use polylock_core::{AcquireRequest, DistributedLock, LockKey, Wait};
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{ELECTION_TTL, LONG_TTL};
use crate::candidate::{Candidate, ELECTION};
use crate::register::Registers;

/// The arguments of a client.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientOptions {
    /// The lock service.
    #[arg(long)]
    url: String,
    /// The socket of the fenced registers.
    #[arg(long)]
    registers: PathBuf,
    /// What it acquires and for how long follows from this.
    #[arg(long)]
    seed: u64,
    /// The locks that it competes for.
    #[arg(required = true)]
    keys: Vec<String>,
}

/// Competes for the locks and the lead, and tells its history as JSON lines on the standard output; ends with
/// the nemesis.
pub(crate) fn run(options: &ClientOptions) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(compete_and_campaign(options))
}

async fn compete_and_campaign(options: &ClientOptions) -> io::Result<()> {
    let mut registers = Registers::connect(&options.registers)?;
    let mut rng = Rng::stream(options.seed, "client", 0);
    let recorder = Recorder::new().with_output(io::stdout());
    let locks = loop {
        registers.check()?;
        match polylock::connect(&options.url).await {
            Ok(locks) => break locks,
            // The server may be away; a URL that is wrong never connects, and nothing is granted.
            Err(_) => sleep(rng.millis(50, 300)).await,
        }
    };
    let mut candidate = Candidate {
        election: Election::new(Arc::clone(&locks), ELECTION)
            .map_err(io::Error::other)?
            .ttl(ELECTION_TTL),
        recorder: recorder.clone(),
        registers: Registers::connect(&options.registers)?,
        rng: Rng::stream(options.seed, "candidate", 0),
    };
    let competing = compete(options, &*locks, &recorder, &mut registers, &mut rng);
    tokio::try_join!(competing, candidate.campaign())?;
    Ok(())
}

async fn compete(
    options: &ClientOptions,
    locks: &dyn DistributedLock,
    recorder: &Recorder,
    registers: &mut Registers,
    rng: &mut Rng,
) -> io::Result<()> {
    let keys = options.keys.iter().map(|key| LockKey::new(key.as_str()));
    let keys: Vec<_> = keys.collect::<Result<_, _>>().map_err(io::Error::other)?;
    loop {
        registers.check()?;
        let request = draw(rng, &keys, locks.capabilities().min_ttl);
        match recorder.acquire(locks, &request).await {
            Ok(held) => {
                let time = draw_hold(rng);
                hold(&held, time, request.key(), registers).await?;
                // The release goes on behind a future that is dropped.
                drop(timeout(RELEASE_TIMEOUT, held.release()).await);
                sleep(rng.millis(0, 20)).await;
            }
            // The history has the error; the next attempt may go better.
            Err(_) => sleep(rng.millis(10, 150)).await,
        }
    }
}

/// Writes with its token, and looks at the lock after each write: what is written after a pause
/// goes out before the loss is noticed, as the writes of most programs do.
async fn hold(
    held: &Recorded,
    time: Duration,
    key: &LockKey,
    registers: &mut Registers,
) -> io::Result<()> {
    let until = Instant::now() + time;
    loop {
        if let Some(token) = held.fencing_token() {
            registers.write(key, token)?;
        }
        if !held.look() {
            held.lost().await;
            return Ok(());
        }
        if Instant::now() >= until {
            return Ok(());
        }
        tokio::select! {
            _ = held.lost() => return Ok(()),
            () = sleep(PACE) => {}
        }
    }
}

fn draw(rng: &mut Rng, keys: &[LockKey], min_ttl: Duration) -> AcquireRequest {
    let ttl = if rng.chance(100) {
        LONG_TTL
    } else {
        rng.millis(1_000, 4_000).max(min_ttl)
    };
    AcquireRequest::new(rng.pick(keys).clone())
        .with_ttl(ttl)
        .with_wait(Wait::AtMost(rng.millis(200, 3_000)))
}

/// Mostly short, so that locks change hands; long ones are there when a fault strikes, and outlast the
/// election of a leader and the session timeout after it.
fn draw_hold(rng: &mut Rng) -> Duration {
    if rng.chance(100) {
        rng.millis(2_000, 14_000)
    } else {
        rng.millis(0, 300)
    }
}

pub(crate) const PACE: Duration = Duration::from_millis(15);
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
