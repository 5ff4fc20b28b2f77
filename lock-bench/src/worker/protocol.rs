//! What a run and its contenders say to each other: a line of JSON at a time, and the spans in
//! binary at the end.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::{Recorded, Span};
use crate::subject::Failure;
use crate::workloads::Job;

/// The first line that a contender gets; the second one is the window.
#[derive(Deserialize, Serialize)]
pub(super) struct Order {
    /// With its secrets, which therefore come by a pipe and not in an argument.
    pub(super) url: String,
    pub(super) part: Part,
    /// The number of the run.
    pub(super) run: u64,
    pub(super) work: Work,
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
#[derive(Deserialize, Serialize)]
pub(super) enum Said {
    /// The spans follow, so many of them.
    Done {
        recorded: Box<Recorded>,
        spans: usize,
    },
    Failed {
        kind: String,
        message: String,
    },
    Held {
        token: Option<u64>,
    },
    Ready,
}

impl Said {
    pub(super) fn failed(failure: &Failure) -> Self {
        Self::Failed {
            kind: failure.kind().to_owned(),
            message: failure.message().to_owned(),
        }
    }

    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("BUG: all keys of maps can be text");
        line.push(b'\n');
        line
    }
}

pub(super) fn to_bytes(spans: &[Span]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(spans.len() * Span::BYTES);
    bytes.extend(spans.iter().flat_map(|span| span.to_bytes()));
    bytes
}

pub(super) fn of_bytes(bytes: &[u8]) -> Vec<Span> {
    let spans = bytes.chunks(Span::BYTES);
    spans.filter_map(Span::of_bytes).collect()
}

/// How many bytes of spans follow; none if that is more than a contender can have.
pub(super) fn length(spans: usize) -> Option<usize> {
    (spans <= MAX_SPANS).then_some(spans * Span::BYTES)
}

const MAX_SPANS: usize = 1 << 26;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::measure::Waiting;

    #[test]
    fn what_was_recorded_arrives() {
        let recorded = Recorded {
            spans: vec![
                Span {
                    token: 7,
                    asked: 1,
                    ..Span::default()
                },
                Span::default(),
            ],
            stride: 2,
            unserved: vec![Waiting { key: 0, asked: 9 }],
            per_contender: BTreeMap::from([(3, 2)]),
            processor_ns: 5,
            ..Recorded::default()
        };
        let bytes = to_bytes(&recorded.spans);
        assert_eq!(length(2), Some(bytes.len()));
        assert_eq!(of_bytes(&bytes), recorded.spans);
        let recorded = Box::new(recorded);
        let line = Said::Done { recorded, spans: 2 }.line();
        let Said::Done { recorded, spans } = serde_json::from_slice(&line).unwrap() else {
            panic!("another line");
        };
        assert_eq!((recorded.spans.len(), spans), (0, 2), "spans are no JSON");
        assert_eq!((recorded.stride, recorded.processor_ns), (2, 5));
        assert_eq!(recorded.per_contender, BTreeMap::from([(3, 2)]));
        assert_eq!(recorded.unserved, [Waiting { key: 0, asked: 9 }]);
    }
}
