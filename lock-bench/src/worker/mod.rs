//! Contenders that are processes. They and the run say a line of JSON at a time: an order with its
//! URL, which has secrets and therefore comes by a pipe and not in an argument; `Ready`; the window;
//! and what came out.

mod process;
mod serve;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::Recorded;
use crate::subject::Failure;
use crate::workloads::Job;

pub(crate) use self::process::{PROCESSES, Process};
pub use self::serve::serve;

/// The hidden argument with which a program is started as a contender.
pub const ARGUMENT: &str = "bench-worker";

/// The first line that a contender gets; the second one is the window.
#[derive(Deserialize, Serialize)]
struct Order {
    url: String,
    part: Part,
    /// The number of the run.
    run: u64,
    work: Work,
}

/// Which part of a target is measured.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Part {
    /// The bare commands that it comes with.
    Bare,
    /// The target itself.
    Whole,
}

/// What a process is for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Work {
    Contend(Job),
    /// To hold so many locks and do nothing else.
    Footprint(Job),
    /// To take this lock, and to be killed.
    Hold {
        name: String,
        ttl: Duration,
    },
}

/// A line of a contender.
#[derive(Debug, Deserialize, Serialize)]
enum Said {
    Done(Box<Recorded>),
    Failed(Failure),
    Held { token: Option<u64> },
    Ready,
}

fn line(of: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(of).expect("BUG: all keys of maps can be text");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::measure::{NO_TOKEN, Span, Waiting};

    #[test]
    fn what_was_recorded_arrives() {
        let span = Span {
            contender: u32::MAX,
            token: NO_TOKEN,
            released: u64::MAX - 1,
            ..Span::default()
        };
        let recorded = Recorded {
            spans: vec![span, Span::default()],
            unserved: vec![Waiting { key: 0, asked: 9 }],
            per_contender: BTreeMap::from([(3, 2)]),
            ..Recorded::default()
        };
        let text = line(&Said::Done(Box::new(recorded)));
        let Said::Done(read) = serde_json::from_slice(&text).unwrap() else {
            panic!("another line");
        };
        assert_eq!(read.spans, [span, Span::default()]);
        assert_eq!(read.unserved, [Waiting { key: 0, asked: 9 }]);
        assert_eq!(line(&Said::Done(read)), text);
    }
}
