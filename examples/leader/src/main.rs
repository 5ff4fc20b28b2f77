//! A job on three machines that runs once in each period: three processes stand for election, one leads,
//! and when it is killed another one continues. A follower sees each of them at its address.
//!
//! ```console
//! $ cargo run -p leader
//! $ cargo run -p leader --features polylock/redis -- redis://localhost
//! ```
//!
//! The period is 300 ms here, and a minute in a crontab. The leader makes up for the periods in which nobody
//! led. Each tick is recorded with its fencing token and its process: every period has one, and each leader has
//! a larger token than the one before.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::{Stream, StreamExt as _};
use polylock::coordination::{Election, Leader, Term};
use polylock::prelude::*;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

const MACHINES: usize = 3;
const PERIOD_MS: u64 = 300;
/// A leader that was killed is replaced after this time. Services take 10 s or more, so that a pause of the
/// machine or the network does not cost the lead.
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
    kill_the_leader(url, &directory.path().join("ticks")).await
}

/// One of the three processes: leads whenever it can, until its parent closes its input.
async fn stand_for_election(url: &str, record: &Path) -> Result<()> {
    let dismissed = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink()));
    let locks = polylock::connect(url).await?;
    let election = Election::new(Arc::clone(&locks), "report")?.ttl(TTL);
    tokio::select! {
        error = election.lead(|term| lead(term, record.to_owned())) => return Err(error.into()),
        _ = dismissed => {}
    }
    locks.shutdown(SLACK).await;
    Ok(())
}

/// The work of the leader, which is dropped when it leads no more: the job in every period, beginning with
/// those that nobody has run.
async fn lead(term: Term, record: PathBuf) -> Result<()> {
    let (token, pid) = (term.fencing_token().value(), std::process::id().into());
    term.proclaim(address(pid)).await?;
    let mut period = match ticks(&record)?.last() {
        Some([last, ..]) => last + 1,
        None => u64::try_from(UNIX_EPOCH.elapsed()?.as_millis())? / PERIOD_MS,
    };
    loop {
        let due = UNIX_EPOCH + Duration::from_millis(period * PERIOD_MS);
        sleep(due.duration_since(SystemTime::now()).unwrap_or_default()).await;
        // An await point before each tick that is made up for, at which the lock is checked.
        tokio::task::yield_now().await;
        // One system call: two leaders at once would show as two lines, not as a mixed one.
        let line = format!("{period} {token} {pid}\n");
        let mut file = File::options().append(true).create(true).open(&record)?;
        file.write_all(line.as_bytes())?;
        period += 1;
    }
}

fn address(pid: u64) -> String {
    format!("10.0.0.7:{pid}")
}

/// Starts three processes, kills the one that leads, and checks the record.
async fn kill_the_leader(url: &str, record: &Path) -> Result<()> {
    let follower = Election::new(polylock::connect(url).await?, "report")?;
    let mut leaders = pin!(follower.observe());
    let mut machines = Vec::new();
    for _ in 0..MACHINES {
        let mut copy = Command::new(std::env::current_exe()?);
        copy.args(["candidate", url]).arg(record);
        machines.push(copy.stdin(Stdio::piped()).kill_on_drop(true).spawn()?);
    }
    check(&wait_for_ticks(record, 5).await?)?;
    let first = next_leader(&mut leaders, "").await?;
    println!("the leader is at {first}");

    let is_first = |pid: u32| address(pid.into()) == first;
    let leader = machines.iter_mut().find(|it| it.id().is_some_and(is_first));
    leader.context("a stranger leads")?.kill().await?;
    let (killed, before) = (Instant::now(), ticks(record)?);
    ensure_last_tick_of(&first, &before)?;
    let after = wait_for_ticks(record, before.len()).await?;
    let takeover = killed.elapsed();
    let next = next_leader(&mut leaders, &first).await?;
    ensure_last_tick_of(&next, &after)?;
    println!("it was killed, the next one leads after {takeover:.1?} (ttl {TTL:?}), at {next}");
    ensure!(takeover < TTL + SLACK, "the next leader took too long");

    let ticks = wait_for_ticks(record, before.len() + 10).await?;
    check(&ticks)?;
    let count = ticks.len();
    println!("{count} periods, {count} ticks, none missed, none twice");
    Ok(())
}

/// Waits until the follower sees a leader at another address than `before`.
async fn next_leader(
    leaders: &mut (impl Stream<Item = Option<Leader>> + Unpin),
    before: &str,
) -> Result<String> {
    let seen = async {
        loop {
            let leader = leaders.next().await.context("the follower has stopped")?;
            let address = leader.and_then(|leader| leader.address).unwrap_or_default();
            if !address.is_empty() && address != before.as_bytes() {
                return Ok(String::from_utf8(address)?);
            }
        }
    };
    timeout(TIMEOUT, seen).await.context("nobody leads")?
}

/// One run of the job: its period, the token of the leader and its process.
type Tick = [u64; 3];

/// Checks that the process at the address that the follower sees has run the job last.
fn ensure_last_tick_of(leader: &str, ticks: &[Tick]) -> Result<()> {
    let [.., pid] = ticks.last().context("there are no ticks")?;
    ensure!(
        address(*pid) == leader,
        "process {pid} works, and {leader} leads"
    );
    Ok(())
}

/// One tick in each period; another leader has a larger token.
fn check(ticks: &[Tick]) -> Result<()> {
    for pair in ticks.windows(2) {
        let [before, after] = [pair[0], pair[1]];
        let is_same_leader = after[1..] == before[1..];
        let is_next = after[0] == before[0] + 1 && (is_same_leader || after[1] > before[1]);
        ensure!(is_next, "{after:?} follows {before:?}");
    }
    Ok(())
}

fn ticks(record: &Path) -> Result<Vec<Tick>> {
    let text = match std::fs::read_to_string(record) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let tick = |line: &str| {
        let numbers = line.split(' ').map(str::parse);
        let numbers = numbers.collect::<Result<Vec<u64>, _>>()?;
        Tick::try_from(numbers).ok().context("this is no tick")
    };
    text.lines().map(tick).collect()
}

/// Waits for more than so many ticks.
async fn wait_for_ticks(record: &Path, number: usize) -> Result<Vec<Tick>> {
    let more = async {
        loop {
            let ticks = ticks(record)?;
            if ticks.len() > number {
                return Ok(ticks);
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let Ok(found) = timeout(TIMEOUT, more).await else {
        bail!("timed out with {} ticks", ticks(record)?.len());
    };
    found
}
