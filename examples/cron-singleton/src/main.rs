//! A cron job on three machines that runs once per period: three processes stand for election, one
//! leads, and when it is killed another one continues.
//!
//! ```console
//! $ cargo run -p cron-singleton
//! $ cargo run -p cron-singleton --features polylock/redis -- redis://localhost
//! ```
//!
//! The period is 300 ms here, and a minute in a crontab. The leader holds its lock from tick to
//! tick and makes up for what was missed while nobody led. Each tick is recorded with its fencing
//! token: every period has one tick, and the tokens never decrease.
//!
//! The other way acquires the lock for each tick. Clocks differ by more than a short job takes, so
//! a machine whose clock is late finds the lock free and runs the job again; `min_hold` keeps the
//! lock taken for most of the period, however short the job was.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use polylock::prelude::*;
use tokio::process::{Child, Command};
use tokio::time::sleep;

const MACHINES: usize = 3;
const PERIOD_MS: u64 = 300;
/// The lock of a leader that was killed is free after this time. Production services take 10 s or
/// more, so that a pause of the machine or the network does not cost the lead.
const TTL: Duration = Duration::from_secs(2);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [role, url, record] = &args[..]
        && role == "candidate"
    {
        return stand_for_election(url, record.as_ref()).await;
    }
    let directory = tempfile::tempdir()?;
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    let url = args.first().unwrap_or(&file);

    let without = runs_of_one_tick(url, Duration::ZERO).await?;
    let with = runs_of_one_tick(url, Duration::from_secs(50)).await?;
    println!("lock per tick, {MACHINES} machines: {without} runs, with min_hold {with}");
    let is_kept = (without, with) == (MACHINES, 1);
    ensure!(is_kept, "min_hold did not keep the lock");

    kill_the_leader(url, &directory.path().join("ticks")).await
}

/// Acquires a lock for one tick on each machine, one after the other as their clocks reach it, and
/// counts how often the job runs.
async fn runs_of_one_tick(url: &str, min_hold: Duration) -> Result<usize> {
    let key = format!("cron/mail/{}/{min_hold:?}", std::process::id());
    let mut machines = Vec::new();
    for _ in 0..MACHINES {
        machines.push(polylock::connect(url).await?);
    }
    let mut runs = 0;
    for locks in &machines {
        let request = locks.request(&*key).ttl(TTL).min_hold(min_hold);
        if let Some(guard) = request.try_acquire().await? {
            runs += 1;
            // The job was short. Within `min_hold` this leaves the lock taken, and does not wait.
            guard.release().await?;
        }
    }
    Ok(runs)
}

/// One of the three processes: leads whenever it can, until its parent closes its input.
async fn stand_for_election(url: &str, record: &Path) -> Result<()> {
    let dismissed = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink()));
    let locks = polylock::connect(url).await?;
    let work = async {
        loop {
            let request = locks.request("cron/report").ttl(TTL).max_hold(None);
            let guard = request.wait(Wait::Forever).acquire().await?;
            let token = guard.fencing_token().context("no fencing tokens")?;
            // `run` checks at each await point whether this process still leads.
            match guard.run(lead(record, token.value())).await {
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
async fn lead(record: &Path, token: u64) -> Result<()> {
    let mut period = match ticks(record)?.last() {
        Some(last) => last.period + 1,
        None => u64::try_from(UNIX_EPOCH.elapsed()?.as_millis())? / PERIOD_MS,
    };
    loop {
        let due = UNIX_EPOCH + Duration::from_millis(period * PERIOD_MS);
        sleep(due.duration_since(SystemTime::now()).unwrap_or_default()).await;
        // An await point before each tick that is made up for, so that `run` checks the lock.
        tokio::task::yield_now().await;
        let line = format!("{period} {token} {}\n", std::process::id());
        // One system call: two leaders at once would show as two lines, not as a mixed one.
        let mut file = File::options().append(true).create(true).open(record)?;
        file.write_all(line.as_bytes())?;
        period += 1;
    }
}

/// Starts three processes, kills the one that leads, and checks the record.
async fn kill_the_leader(url: &str, record: &Path) -> Result<()> {
    let mut machines = Vec::new();
    for _ in 0..MACHINES {
        machines.push(start(url, record)?);
    }
    let before = wait_for(record, |ticks| ticks.len() > 5).await?;
    check(&before)?;
    let first = before[before.len() - 1];
    let leader = machines.iter_mut().find(|it| it.id() == Some(first.pid));
    leader.context("a stranger leads")?.kill().await?;
    let killed = Instant::now();
    let is_next = |tick: &&Tick| tick.token > first.token;
    wait_for(record, |ticks| ticks.iter().any(|tick| is_next(&tick))).await?;
    let takeover = killed.elapsed();
    let ticks = wait_for(record, |ticks| ticks.iter().filter(is_next).count() > 10).await?;
    let next = ticks.iter().find(is_next).context("nobody leads")?;

    println!("{first:?} led and was killed");
    println!("{next:?} led after {takeover:.1?} (ttl {TTL:?})");
    check(&ticks)?;
    let count = ticks.len();
    println!("{count} periods, {count} ticks, none missed, none twice");
    ensure!(takeover < TTL + SLACK, "the next leader took too long");
    Ok(())
}

/// One tick in each period, and no leader after the next one.
fn check(ticks: &[Tick]) -> Result<()> {
    for pair in ticks.windows(2) {
        let [before, after] = [pair[0], pair[1]];
        let is_next = after.period == before.period + 1 && after.token >= before.token;
        ensure!(is_next, "{after:?} follows {before:?}");
    }
    Ok(())
}

/// Starts a copy of this program that stands for election, and ends with this process.
fn start(url: &str, record: &Path) -> io::Result<Child> {
    let mut copy = Command::new(std::env::current_exe()?);
    copy.args(["candidate", url]).arg(record);
    copy.stdin(Stdio::piped()).kill_on_drop(true).spawn()
}

/// One run of the job.
#[derive(Clone, Copy, Debug)]
struct Tick {
    period: u64,
    token: u64,
    pid: u32,
}

fn ticks(record: &Path) -> Result<Vec<Tick>> {
    let text = match std::fs::read_to_string(record) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let tick = |line: &str| {
        let [period, token, pid] = line.split(' ').collect::<Vec<_>>()[..] else {
            bail!("{line:?} is no tick");
        };
        Ok(Tick {
            period: period.parse()?,
            token: token.parse()?,
            pid: pid.parse()?,
        })
    };
    text.lines().map(tick).collect()
}

async fn wait_for(record: &Path, condition: impl Fn(&[Tick]) -> bool) -> Result<Vec<Tick>> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let ticks = ticks(record)?;
        if condition(&ticks) {
            return Ok(ticks);
        }
        let count = ticks.len();
        ensure!(Instant::now() < deadline, "timed out with {count} ticks");
        sleep(Duration::from_millis(10)).await;
    }
}
