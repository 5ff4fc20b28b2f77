use std::collections::BTreeMap;

use super::log::is_kept;
use super::{Log, Span, Waiting};
use crate::report::Requests;

/// What the contenders of one measurement have written down, of one process or of all.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) spans: Vec<Span>,
    /// Every how many slices of the time are in `spans`; see [`Log`].
    pub(crate) stride: u64,
    pub(crate) unserved: Vec<Waiting>,
    /// Acquisitions in the window, of each contender by its number.
    pub(crate) per_contender: BTreeMap<u32, u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) failures: Vec<String>,
    /// Processor time in the window.
    pub(crate) processor_ns: u64,
    /// Whether requests were left out because too many waited.
    pub(crate) is_overrun: bool,
    pub(crate) layer: Option<Requests>,
}

impl Recorded {
    /// What a contender wrote down.
    pub(crate) fn of(contender: u32, log: Log) -> Self {
        Self {
            spans: log.spans,
            stride: log.stride,
            unserved: log.unserved,
            per_contender: BTreeMap::from([(contender, log.acquisitions)]),
            errors: log.errors,
            failures: log.failures,
            ..Self::default()
        }
    }

    /// Adds what others wrote down, and drops the slices of the time that one of them has dropped.
    pub(crate) fn add(&mut self, mut other: Self) {
        let stride = self.stride.max(other.stride).max(1);
        for part in [&mut *self, &mut other] {
            if part.stride < stride {
                part.spans.retain(|span| is_kept(span.acquired, stride));
            }
        }
        self.stride = stride;
        self.spans.append(&mut other.spans);
        self.unserved.append(&mut other.unserved);
        for (contender, count) in other.per_contender {
            *self.per_contender.entry(contender).or_default() += count;
        }
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        for failure in other.failures {
            if self.failures.len() < MESSAGES && !self.failures.contains(&failure) {
                self.failures.push(failure);
            }
        }
        self.processor_ns += other.processor_ns;
        self.is_overrun |= other.is_overrun;
        if let Some(requests) = other.layer {
            let all = self.layer.get_or_insert_default();
            all.with.merge(&requests.with);
            all.without.merge(&requests.without);
        }
    }
}

/// Failures whose messages are kept, of a measurement.
const MESSAGES: usize = 5;
