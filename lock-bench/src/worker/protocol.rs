//! What a run and its contenders say to each other: a line of JSON at a time, and the spans in
//! binary at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::{Recorded, Span, Waiting};
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
    /// To take this lock, and to be killed.
    Hold {
        name: String,
        ttl: Duration,
    },
}

/// A line of a contender.
#[derive(Deserialize, Serialize)]
pub(super) enum Said {
    Done(Header),
    Failed { kind: String, message: String },
    Held { token: Option<u64> },
    Ready,
}

/// What was recorded, without the spans, which follow.
#[derive(Deserialize, Serialize)]
pub(super) struct Header {
    spans: usize,
    stride: u64,
    unserved: Vec<Waiting>,
    per_contender: BTreeMap<u32, u64>,
    errors: BTreeMap<String, u64>,
    failures: Vec<String>,
    processor_ns: u64,
    is_overrun: bool,
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

impl Header {
    pub(super) fn of(recorded: Recorded) -> (Self, Vec<u8>) {
        let mut bytes = Vec::with_capacity(recorded.spans.len() * Span::BYTES);
        bytes.extend(recorded.spans.iter().flat_map(|span| span.to_bytes()));
        let header = Self {
            spans: recorded.spans.len(),
            stride: recorded.stride,
            unserved: recorded.unserved,
            per_contender: recorded.per_contender,
            errors: recorded.errors,
            failures: recorded.failures,
            processor_ns: recorded.processor_ns,
            is_overrun: recorded.is_overrun,
        };
        (header, bytes)
    }

    /// How many bytes follow; none if that is more than a contender can have.
    pub(super) fn bytes(&self) -> Option<usize> {
        (self.spans <= MOST_SPANS).then(|| self.spans * Span::BYTES)
    }

    pub(super) fn recorded(self, bytes: &[u8]) -> Recorded {
        Recorded {
            spans: bytes
                .chunks(Span::BYTES)
                .filter_map(Span::of_bytes)
                .collect(),
            stride: self.stride,
            unserved: self.unserved,
            per_contender: self.per_contender,
            errors: self.errors,
            failures: self.failures,
            processor_ns: self.processor_ns,
            is_overrun: self.is_overrun,
            layer: None,
        }
    }
}

const MOST_SPANS: usize = 1 << 26;

#[cfg(test)]
mod tests {
    use super::*;

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
        let spans = recorded.spans.clone();
        let (header, bytes) = Header::of(recorded);
        let line = Said::Done(header).line();
        let Said::Done(header) = serde_json::from_slice(&line).unwrap() else {
            panic!("another line");
        };
        assert_eq!(header.bytes(), Some(bytes.len()));
        let read = header.recorded(&bytes);
        assert_eq!(read.spans, spans);
        assert_eq!((read.stride, read.processor_ns), (2, 5));
        assert_eq!(read.per_contender, BTreeMap::from([(3, 2)]));
        assert_eq!(read.unserved, [Waiting { key: 0, asked: 9 }]);
    }
}
