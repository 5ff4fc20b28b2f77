//! What locks in ZooKeeper cost, beside the bare requests of the same client in the same run.
//!
//! `cargo bench -p lock-zk --bench zookeeper [pair|many|handoff|queue]...`
//!
//! The server runs on processor 0 and the clients on processor 1, like two hosts: left alone, the
//! scheduler moves them together and apart, and a figure changes by a factor of three.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program")]

mod bare;
mod handoff;
mod many;
mod pair;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use lock_core::{DistributedLock, Registry};
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use lock_zk::ZooKeeperBackend;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    // Threads that are there already keep their processors, and this one is the first.
    pin(rustix::process::getpid().as_raw_nonzero().get(), 1);
    if let [contender, url, rounds] = args.as_slice()
        && contender == "contend"
    {
        return handoff::contend(url, rounds.parse().unwrap());
    }
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    for (name, run) in [
        ("pair", pair::run as fn()),
        ("many", many::run),
        ("handoff", handoff::run),
        ("queue", queue::run),
    ] {
        if wanted(name) {
            run();
        }
    }
}

/// A server on a processor of its own.
fn server() -> ZooKeeperServer {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let pid = i32::try_from(server.pid()).unwrap();
    // All of its threads: those that it starts later inherit it.
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let id = thread.unwrap().file_name();
        pin(id.to_str().unwrap().parse().unwrap(), 0);
    }
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
async fn connect(server: &ZooKeeperServer, params: &str) -> Arc<dyn DistributedLock> {
    let registry = Registry::new().with(ZooKeeperBackend::default()).unwrap();
    let url = format!("{}/bench?timeout=30s{params}", server.url());
    registry.connect(&url).await.unwrap()
}

/// Requests that came to the server.
fn requests(server: &ZooKeeperServer) -> u64 {
    let received = server.mntr("zk_packets_received").unwrap();
    u64::try_from(received).unwrap()
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

fn row(what: &str, figure: &str) {
    println!("| {what} | {figure} |");
}
