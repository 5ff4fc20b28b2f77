//! Contenders that are processes. The run writes an `Order` to the standard input of each, and
//! later the window; a contender answers each step with a `Result` in a line of JSON. The URL has
//! secrets, and therefore comes by a pipe and not in an argument.

mod process;
mod serve;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::workloads::Job;

pub(crate) use self::process::{PROCESSES, Process};
pub use self::serve::serve;

/// The hidden argument with which a program is started as a contender.
pub const ARGUMENT: &str = "bench-worker";

/// The first line that a contender gets.
#[derive(Deserialize, Serialize)]
struct Order {
    url: String,
    /// The number of the run, if its bare commands are measured and not the target itself.
    bare: Option<u64>,
    work: Work,
}

/// What a process is for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Work {
    Contend(Job),
    /// To hold so many locks and do nothing else.
    Footprint(Job),
    /// To acquire this lock, and to be killed.
    Hold {
        name: String,
        ttl: Duration,
    },
}

fn line(of: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(of).expect("BUG: all keys of maps can be text");
    line.push(b'\n');
    line
}
