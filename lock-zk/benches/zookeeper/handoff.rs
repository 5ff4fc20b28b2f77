//! Two processes that both want one lock: from one's release to the other's acquisition.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::DistributedLockExt;

use crate::bare::Bare;
use crate::{median, requests, row, runtime, server};

const ROUNDS: usize = 500;
/// How long each of them keeps the lock.
pub(crate) const HOLD: Duration = Duration::from_millis(2);

pub(crate) fn run() {
    let server = server();
    let delete_and_list = || {
        runtime().block_on(async {
            let bare = Bare::connect(&server);
            bare.directory("/bare").await;
            let mut times = Vec::new();
            for _ in 0..500 {
                times.push(bare.delete_and_list("/bare").await);
            }
            median(times)
        })
    };
    let before = delete_and_list();
    let requests_before = requests(&server);
    let contenders: Vec<_> = (0..2)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["contend", &server.url(), &ROUNDS.to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut holds: Vec<[u64; 4]> = Vec::new();
    for (process, mut contender) in contenders.into_iter().enumerate() {
        let mut text = String::new();
        contender
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(contender.wait().unwrap().success());
        for line in text.lines() {
            let mut numbers = line.split(' ').map(|n| n.parse::<u64>().unwrap());
            holds.push([
                numbers.next().unwrap(),
                numbers.next().unwrap(),
                numbers.next().unwrap(),
                process as u64,
            ]);
        }
    }
    let used = requests(&server) - requests_before;
    let after = delete_and_list();
    holds.sort_unstable();
    let crossings = holds.windows(2).filter(|pair| pair[0][3] != pair[1][3]);
    let times: Vec<_> = crossings
        .map(|pair| {
            assert!(pair[0][2] <= pair[1][1], "two held the lock");
            Duration::from_nanos(pair[1][1] - pair[0][2])
        })
        .collect();
    let (count, handoff) = (times.len(), median(times));
    let bare = before.max(after);
    row(
        "bare delete and list, before and after",
        &format!("{before:.1?}, {after:.1?}"),
    );
    row(
        &format!("hand-off between two processes, {count} of them"),
        &format!("{handoff:.1?}"),
    );
    row(
        "ratio",
        &format!("{:.2}", handoff.as_secs_f64() / bare.as_secs_f64()),
    );
    row(
        "requests per acquisition",
        &format!("{:.2}", used as f64 / holds.len() as f64),
    );
}

/// One of the processes: prints token, time of the acquisition and time of the release.
pub(crate) fn contend(url: &str, rounds: usize) {
    runtime().block_on(async {
        let registry = lock_core::Registry::new();
        let registry = registry.with(lock_zk::ZooKeeperBackend::default()).unwrap();
        let locks = registry
            .connect(&format!("{url}/bench?session-timeout=10s"))
            .await
            .unwrap();
        let mut lines = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let guard = locks.lock("handoff").await.unwrap();
            let acquired = now();
            let token: u64 = guard.fencing_token().unwrap().into();
            // The other one is in the queue afterwards.
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
