//! The test kit itself: servers, networks and clocks do what they say, and the checks see what is broken.

mod flaws;
mod mutants;
mod network;
mod page;
mod proxy_redis;
mod proxy_sql;
mod servers;
mod simulation;

use std::thread;
use std::time::{Duration, Instant};

fn eventually(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}
