//! Two processes that both want one lock: from one's release to the other's acquisition.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lock_core::DistributedLockExt;

use crate::bare::{Bare, Far, Means};
use crate::figures::{median, row};
use crate::locks::{Mode, connect, runtime};
use crate::server::{Database, Server};

const ROUNDS: usize = 300;
/// How long each of them keeps the lock.
const HOLD: Duration = Duration::from_millis(2);

pub(crate) fn run(database: Database) {
    let server = Server::start(database, false);
    for mode in Mode::ALL {
        let before = round_trips(database, &server);
        let url = format!("{}?mode={}", server.url(), mode.name());
        let (count, handoff) = handoffs(&url);
        let after = round_trips(database, &server);
        let what = format!("{} {}", database.title(), mode.name());
        row(
            &format!("{what}: hand-off between two processes, {count} of them"),
            &format!("{handoff:.1?}"),
        );
        for (how, before, after) in [
            ("in the task that measures", before.0, after.0),
            ("in a thread of its own", before.1, after.1),
        ] {
            let ratio = handoff.as_secs_f64() / before.max(after).as_secs_f64();
            row(
                &format!("{what}: bare SELECT 1 {how}, before and after; ratio"),
                &format!("{before:.1?}, {after:.1?} | {ratio:.2}"),
            );
        }
    }
}

pub(crate) fn run_sqlite() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("locks.db");
    let (count, handoff) = handoffs(&format!("sqlite:{}", path.display()));
    row(
        &format!("SQLite lease: hand-off between two processes, {count} of them"),
        &format!("{handoff:.1?}"),
    );
}

/// Near and far.
fn round_trips(database: Database, server: &Server) -> (Duration, Duration) {
    runtime().block_on(async {
        let url = server.url();
        let mut near = Bare::open(database, &url, Means::Connection).await;
        let far = Far::open(database, &url, Means::Connection);
        let (mut near_times, mut far_times) = (vec![], vec![]);
        for _ in 0..300 {
            // As long as a lock is held: what sleeps takes its time to wake up.
            tokio::time::sleep(HOLD).await;
            let began = Instant::now();
            near.select_one().await;
            near_times.push(began.elapsed());
            tokio::time::sleep(HOLD).await;
            let began = Instant::now();
            far.select_one().await;
            far_times.push(began.elapsed());
        }
        (median(near_times), median(far_times))
    })
}

/// How many there were, and how long the median took.
fn handoffs(url: &str) -> (usize, Duration) {
    let contenders: Vec<_> = (0..2)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["contend", url, &ROUNDS.to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut holds: Vec<[u64; 4]> = Vec::new();
    for (process, mut contender) in contenders.into_iter().enumerate() {
        let mut text = String::new();
        let mut output = contender.stdout.take().unwrap();
        output.read_to_string(&mut text).unwrap();
        assert!(contender.wait().unwrap().success());
        for line in text.lines() {
            let mut numbers = line.split(' ').map(|n| n.parse::<u64>().unwrap());
            let mut next = || numbers.next().unwrap();
            holds.push([next(), next(), next(), process as u64]);
        }
    }
    holds.sort_unstable();
    let crossings = holds.windows(2).filter(|pair| pair[0][3] != pair[1][3]);
    let times: Vec<_> = crossings
        .map(|pair| {
            assert!(pair[0][2] <= pair[1][1], "two held the lock");
            Duration::from_nanos(pair[1][1] - pair[0][2])
        })
        .collect();
    (times.len(), median(times))
}

/// One of the processes: prints token, time of the acquisition and time of the release.
pub(crate) fn contend(url: &str, rounds: usize) {
    runtime().block_on(async {
        let locks = connect(url).await;
        let mut lines = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let guard = locks.lock("handoff").await.unwrap();
            let acquired = now();
            let token: u64 = guard.fencing_token().unwrap().into();
            // The other one waits afterwards.
            tokio::time::sleep(HOLD).await;
            let released = now();
            guard.release().await.unwrap();
            lines.push(format!("{token} {acquired} {released}"));
            // Both processes share a processor; what comes next stays out of the other one's way.
            tokio::time::sleep(HOLD / 4).await;
        }
        for line in lines {
            println!("{line}");
        }
    });
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}
