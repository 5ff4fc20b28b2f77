//! A job on three machines that runs once in each period: three processes stand for election, one leads,
//! and when it is killed another one continues. A follower sees each of them at its address.
//!
//! ```console
//! $ cargo run -p leader
//! $ cargo run -p leader --features polylock/redis -- redis://localhost
//! ```
//!
//! The period is 300 ms here, and a minute in a crontab. The leader makes up for the periods in which nobody
//! led. Each tick is recorded with its fencing token: every period has one, and the next leader has a larger
//! token.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::fs::File;
use std::future::ready;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use polylock::coordination::{Election, Term};
use tokio::io::{copy, sink, stdin};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

const MACHINES: usize = 3;
const PERIOD_MS: u64 = 300;
/// A leader that was killed is replaced after this time. Services take 10 s or more, so that a pause of the
/// machine or the network does not cost the lead.
const TTL: Duration = Duration::from_secs(2);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_secs(40);

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [url, record] = &args[..] {
        return stand_for_election(url, record.as_ref()).await;
    }
    let directory = tempfile::tempdir()?;
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    let record = directory.path().join("ticks");
    let url = args.first().unwrap_or(&file);
    timeout(TIMEOUT, kill_the_leader(url, &record)).await?
}

/// One of the three processes: leads whenever it can, until its parent closes its input.
async fn stand_for_election(url: &str, record: &Path) -> Result<()> {
    let election = Election::new(polylock::connect(url).await?, "report")?.ttl(TTL);
    tokio::select! {
        error = election.lead(|term| lead(term, record.to_owned())) => Err(error.into()),
        _ = async { copy(&mut stdin(), &mut sink()).await } => Ok(()),
    }
}

/// The work of the leader, which is dropped when it leads no more: the job in every period, beginning with
/// those that nobody has run.
async fn lead(term: Term, record: PathBuf) -> Result<()> {
    term.proclaim(std::process::id().to_string()).await?;
    let mut period = match ticks(&record)?.last() {
        Some((last, _)) => last + 1,
        None => u64::try_from(UNIX_EPOCH.elapsed()?.as_millis())? / PERIOD_MS,
    };
    loop {
        let due = UNIX_EPOCH + Duration::from_millis(period * PERIOD_MS);
        sleep(due.duration_since(SystemTime::now()).unwrap_or_default()).await;
        // An await point before each tick that is made up for, at which the lock is checked.
        tokio::task::yield_now().await;
        // One system call: two leaders at once would show as two lines, not as a mixed one.
        let line = format!("{period} {}\n", term.fencing_token());
        let mut file = File::options().append(true).create(true).open(&record)?;
        file.write_all(line.as_bytes())?;
        period += 1;
    }
}

/// Starts three processes, kills the one that leads, and checks the record.
async fn kill_the_leader(url: &str, record: &Path) -> Result<()> {
    let mut machines = Vec::new();
    for _ in 0..MACHINES {
        let mut machine = Command::new(std::env::current_exe()?);
        machine.arg(url).arg(record).kill_on_drop(true);
        machines.push(machine.stdin(Stdio::piped()).spawn()?);
    }
    check(&wait_for_ticks(record, 5).await?)?;
    let follower = Election::new(polylock::connect(url).await?, "report")?;
    let leaders = follower.observe();
    let mut addresses = leaders.filter_map(|leader| ready(leader.and_then(|it| it.address)));
    let first = addresses.next().await.context("nobody leads")?;
    let first = String::from_utf8(first)?;
    println!("process {first} leads");

    let is_first = |pid: u32| pid.to_string() == first;
    let leader = machines.iter_mut().find(|it| it.id().is_some_and(is_first));
    leader.context("a stranger leads")?.kill().await?;
    let (killed, before) = (Instant::now(), ticks(record)?.len());
    let after = wait_for_ticks(record, before + 1).await?;
    let takeover = killed.elapsed();
    ensure!(
        after[before].1 > after[before - 1].1,
        "the token did not grow: the killed process did not lead"
    );
    let next = addresses.next().await.context("nobody leads")?;
    let next = String::from_utf8(next)?;
    // The process that was killed has no id.
    let is_next = |pid: u32| pid.to_string() == next;
    let is_another = machines.iter().any(|it| it.id().is_some_and(is_next));
    ensure!(is_another, "a stranger leads");
    println!("it was killed, process {next} leads after {takeover:.1?} (ttl {TTL:?})");
    ensure!(takeover < TTL + SLACK, "the next leader took too long");

    let ticks = wait_for_ticks(record, before + 10).await?;
    check(&ticks)?;
    println!("{} periods, none missed, none twice", ticks.len());
    Ok(())
}

/// One run of the job: its period and the token of the leader.
type Tick = (u64, u64);

/// One tick in each period, and no smaller token after a larger one.
fn check(ticks: &[Tick]) -> Result<()> {
    for pair in ticks.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        let is_next = after.0 == before.0 + 1 && after.1 >= before.1;
        ensure!(is_next, "{after:?} follows {before:?}");
    }
    Ok(())
}

fn ticks(record: &Path) -> Result<Vec<Tick>> {
    let text = match std::fs::read_to_string(record) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let tick = |line: &str| -> Result<Tick> {
        let (period, token) = line.split_once(' ').context("this is no tick")?;
        Ok((period.parse()?, token.parse()?))
    };
    text.lines().map(tick).collect()
}

/// Waits for at least so many ticks.
async fn wait_for_ticks(record: &Path, number: usize) -> Result<Vec<Tick>> {
    loop {
        let ticks = ticks(record)?;
        if ticks.len() >= number {
            return Ok(ticks);
        }
        sleep(Duration::from_millis(10)).await;
    }
}
