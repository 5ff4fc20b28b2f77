use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the contenders of one process do.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) task: Task,
    /// The numbers of those that this process has.
    pub(crate) contenders: Range<u32>,
    /// What the names of all keys begin with.
    pub(crate) prefix: String,
    pub(crate) hold: Duration,
    pub(crate) ttl: Duration,
    /// Spans that each of them keeps at most.
    pub(crate) most_spans: usize,
    pub(crate) seed: u64,
}

/// What a contender does.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Task {
    /// Asks again as soon as it has given back: for the one key of all, or for one of its own.
    Closed { has_own_key: bool },
    /// Asks so often per second for one of so many keys, whatever becomes of it.
    Open { rate: f64, keys: u32 },
}

impl Job {
    pub(crate) fn key(&self, number: u32) -> String {
        format!("{}/{number}", self.prefix)
    }
}
