//! A cron job on three machines that runs once per period: three processes stand for election, one
//! leads, and when it is killed another one goes on.
//!
//! ```console
//! $ cargo run -p polylock-examples --example cron_singleton
//! $ cargo run -p polylock-examples --example cron_singleton -- --backend redis://localhost
//! ```
//!
//! The period is 300 ms here, and a minute in a crontab. The leader holds its lock from tick to
//! tick, renews it, and makes up for what was missed while nobody led. What it does is recorded
//! together with its fencing token: every period has one tick, and the tokens never go back.
//!
//! The other way to do it takes the lock for each tick. Clocks differ by more than a short job
//! takes, so that a machine whose clock is late finds the lock free and runs the job once more.
//! `min_hold` keeps the lock taken for most of the period, however short the job was.
//!
//! Exits with 0 if no tick was missed or ran twice, and another leader was there in time. With
//! `--backend memory:cron` each process has a store of its own, and leads: the program says so and
//! exits with 1.

mod record;

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use polylock::FencingToken;
use polylock::prelude::*;
use tokio::process::{Child, Command};

use crate::record::{Tick, append, check, read};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Three processes, one job per period, and the leader is killed.
#[derive(Parser)]
struct Options {
    /// Where the locks are; a file in a temporary directory by default.
    #[arg(long, value_name = "URL", env = "CRON_BACKEND")]
    backend: Option<String>,
    /// Makes this process one of the three: the file for its ticks.
    #[arg(long, value_name = "FILE", env = "CRON_RECORD", hide = true)]
    record: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    if let (Some(backend), Some(record)) = (&options.backend, &options.record) {
        return stand_for_election(backend, record).await;
    }
    let directory = tempfile::tempdir()?;
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    let backend = options.backend.unwrap_or(file);
    let mut out = io::stdout().lock();

    let free = runs_of_one_tick(&backend, Duration::ZERO).await?;
    let kept = runs_of_one_tick(&backend, MOST_OF_THE_PERIOD).await?;
    writeln!(
        out,
        "a lock per tick, {MACHINES} clocks: {free} runs in one period, with min_hold {kept}"
    )?;
    if (free, kept) != (MACHINES, 1) {
        return Err("min_hold does not keep the lock".into());
    }

    let story = kill_the_leader(&backend, &directory.path().join("ticks")).await?;
    writeln!(out, "{story}")?;
    if story.takeover > TTL + SLACK {
        return Err("the next leader took too long".into());
    }
    Ok(())
}

const MACHINES: usize = 3;
const PERIOD_MS: u64 = 300;
/// The lock of a leader that was killed is free after this time. A production service takes 10 s or
/// more, so that a pause of the machine or of the network does not cost it the lead.
const TTL: Duration = Duration::from_secs(2);
/// What a busy machine may take on top of that.
const SLACK: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(20);
/// For a period of a minute.
const MOST_OF_THE_PERIOD: Duration = Duration::from_secs(50);

/// Takes a lock for one tick on each machine, one after the other as their clocks reach it, and
/// counts how often the job runs.
async fn runs_of_one_tick(backend: &str, min_hold: Duration) -> Result<usize> {
    let key = format!("cron/mail/{}/{min_hold:?}", std::process::id());
    let mut machines = Vec::new();
    for _ in 0..MACHINES {
        machines.push(polylock::connect(backend).await?);
    }
    let mut runs = 0;
    for locks in &machines {
        let request = locks.request(&*key).ttl(TTL).min_hold(min_hold);
        if let Some(turn) = request.try_acquire().await? {
            runs += 1;
            // The job was quick. Within `min_hold` this leaves the lock taken, and does not wait.
            turn.release().await?;
        }
    }
    Ok(runs)
}

/// One of the three processes: leads whenever it can, until whoever started it closes its input.
async fn stand_for_election(backend: &str, record: &Path) -> Result<()> {
    let dismissed = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink()));
    let locks = polylock::connect(backend).await?;
    let work = async {
        loop {
            let candidate = locks.request("cron/report").ttl(TTL).max_hold(None);
            let leader = candidate.wait(Wait::Forever).acquire().await?;
            let token = leader.fencing_token().ok_or("this backend has no tokens")?;
            // Between two ticks and before each, `run` looks whether this process still leads.
            match leader.run(lead(record, token)).await {
                Err(lost) if lost.kind() == ErrorKind::Lost => {}
                ended => return ended?,
            }
        }
    };
    tokio::select! {
        failed = work => failed?,
        _ = dismissed => {}
    }
    locks.shutdown(SLACK).await;
    Ok(())
}

/// Runs the job in every period, beginning with those that nobody has run.
async fn lead(record: &Path, token: FencingToken) -> Result<()> {
    let mut period = match read(record)?.last() {
        Some(last) => last.period + 1,
        None => u64::try_from(since_epoch().as_millis())? / PERIOD_MS,
    };
    loop {
        let due = Duration::from_millis(period * PERIOD_MS);
        tokio::time::sleep(due.saturating_sub(since_epoch())).await;
        // What was missed is made up for without a pause: each tick lets `run` look at the lock.
        tokio::task::yield_now().await;
        append(record, period, token)?;
        period += 1;
    }
}

fn since_epoch() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// Starts three processes, kills the one that leads, and looks at the record.
async fn kill_the_leader(backend: &str, record: &Path) -> Result<Story> {
    let mut crew = Vec::new();
    for _ in 0..MACHINES {
        crew.push(start(backend, record)?);
    }
    let before = ticks(record, |ticks| ticks.len() > 5).await?;
    check(&before)?;
    let first = *before.last().ok_or("nobody leads")?;
    let leader = crew.iter_mut().find(|it| it.id() == Some(first.pid));
    leader.ok_or("a stranger leads")?.kill().await?;
    let killed = Instant::now();
    let is_next = |tick: &Tick| tick.token > first.token;
    ticks(record, |ticks| ticks.iter().any(is_next)).await?;
    let takeover = killed.elapsed();

    let ticks = ticks(record, |ticks| {
        ticks.iter().filter(|t| is_next(t)).count() > 15
    })
    .await?;
    check(&ticks)?;
    let next = *ticks.iter().find(|tick| is_next(tick)).ok_or("nobody")?;
    Ok(Story {
        ticks,
        first,
        next,
        takeover,
    })
}

/// Starts a copy of this program that stands for election. It is killed when the value is dropped,
/// and ends by itself if this process is killed.
fn start(backend: &str, record: &Path) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(COPY)
        .env("CRON_BACKEND", backend)
        .env("CRON_RECORD", record)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}

#[cfg(not(test))]
const COPY: &[&str] = &[];
/// This program is the test runner then, and the copy one of its tests.
#[cfg(test)]
const COPY: &[&str] = &["--exact", "tests::one_of_the_three", "--ignored"];

/// Waits until the record is as wanted.
async fn ticks(record: &Path, wanted: impl Fn(&[Tick]) -> bool) -> Result<Vec<Tick>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ticks = read(record)?;
        if wanted(&ticks) {
            return Ok(ticks);
        }
        if Instant::now() > deadline {
            return Err(format!("{} ticks, and no more", ticks.len()).into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What happened.
#[derive(Debug)]
struct Story {
    ticks: Vec<Tick>,
    first: Tick,
    next: Tick,
    takeover: Duration,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, next, .. } = self;
        write!(
            f,
            "{MACHINES} processes: {} led with token {} and was killed, {} led with token {} after \
             {} ms (ttl {} ms)\n{} periods, {} ticks, none missed, none twice",
            first.pid,
            first.token,
            next.pid,
            next.token,
            self.takeover.as_millis(),
            TTL.as_millis(),
            self.ticks.len(),
            self.ticks.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "a process that another test starts"]
    fn one_of_the_three() {
        let options = Options::parse_from(["cron_singleton"]);
        let (backend, record) = (options.backend.unwrap(), options.record.unwrap());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime
            .block_on(stand_for_election(&backend, &record))
            .unwrap();
    }

    #[tokio::test]
    async fn another_leader_goes_on_after_the_first_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let file = format!("sqlite:{}", directory.path().join("locks.db").display());
        let record = directory.path().join("ticks");
        let story = kill_the_leader(&file, &record).await.unwrap();
        assert_ne!(story.first.pid, story.next.pid);
        assert!(story.first.token < story.next.token, "{story}");
        assert!(story.takeover < TTL + SLACK, "{story}");
        assert!(story.ticks.len() > 20, "{story}");
    }

    #[tokio::test]
    async fn min_hold_keeps_the_lock_for_the_period() {
        let count = |min_hold| runs_of_one_tick("memory:cron", min_hold);
        assert_eq!(count(Duration::ZERO).await.unwrap(), 3);
        assert_eq!(count(MOST_OF_THE_PERIOD).await.unwrap(), 1);
    }
}
