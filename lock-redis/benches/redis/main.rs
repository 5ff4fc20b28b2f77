//! What locks in Redis cost, beside the bare commands of the same client in the same run.
//!
//! `cargo bench -p lock-redis --bench redis [pair|many|handoff|queue|held]...`
//!
//! The server runs on processor 0 and the clients on processor 1, like two hosts: left alone, the
//! scheduler moves them together and apart, and a figure changes by a factor of three.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program")]

mod bare;
mod handoff;
mod held;
mod many;
mod pair;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use lock_core::{DistributedLock, Registry};
use lock_redis::RedisBackend;
use lock_testkit::servers::{RedisOptions, RedisServer, Reply};

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if let [contender, url, rounds] = args.as_slice()
        && contender == "contend"
    {
        pin(rustix::process::getpid().as_raw_nonzero().get(), 1);
        return handoff::contend(url, rounds.parse().unwrap());
    }
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    pin(rustix::process::getpid().as_raw_nonzero().get(), 1);
    for (name, run) in [
        ("pair", pair::run as fn()),
        ("many", many::run),
        ("handoff", handoff::run),
        ("queue", queue::run),
        ("held", held::run),
    ] {
        if wanted(name) {
            run();
        }
    }
}

/// A server on a processor of its own.
fn server() -> RedisServer {
    let server = RedisServer::start(RedisOptions::default());
    pin(i32::try_from(server.pid()).unwrap(), 0);
    server
}

fn pin(pid: i32, processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    let pid = rustix::process::Pid::from_raw(pid);
    // A machine with one processor has nothing to choose.
    let _unpinned = rustix::thread::sched_setaffinity(pid, &set);
}

/// The stack that users get.
async fn connect(server: &RedisServer, params: &str) -> Arc<dyn DistributedLock> {
    let registry = Registry::new().with(RedisBackend::default()).unwrap();
    let url = format!("{}?namespace=bench{params}", server.url());
    registry.connect(&url).await.unwrap()
}

/// How often the server was asked to run a script, whatever the script does inside.
fn calls(server: &RedisServer) -> u64 {
    let Reply::Bulk(stats) = server.command(&["INFO", "commandstats"]) else {
        panic!("no statistics");
    };
    let stats = String::from_utf8(stats).unwrap();
    let row = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    row.map_or(0, |row| row.split(',').next().unwrap().parse().unwrap())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort_unstable();
    values[values.len() / 2]
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// User and system time of a process.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    // In ticks of 10 ms.
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .map(|n| n.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(10 * ticks)
}

fn row(what: &str, figure: &str) {
    println!("| {what} | {figure} |");
}
