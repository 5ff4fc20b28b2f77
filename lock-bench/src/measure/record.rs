use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::{Footprint, Requests};
use crate::subject::Failure;

/// One acquisition. Times are those of the clock.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct HoldSpan {
    pub(crate) key: u32,
    pub(crate) contender: u32,
    pub(crate) token: Option<u64>,
    /// When it was requested; in the open loop, when it should have been.
    pub(crate) requested: u64,
    /// When the contender knew that it has the lock.
    pub(crate) acquired: u64,
    pub(crate) releasing: u64,
    pub(crate) released: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct UnservedRequest {
    pub(crate) key: u32,
    pub(crate) requested: u64,
}

/// The time that counts, between a warm-up and the end.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Window {
    pub(crate) start: u64,
    /// From when on it counts.
    pub(crate) from: u64,
    pub(crate) end: u64,
}

impl Window {
    pub(crate) fn has(self, time: u64) -> bool {
        self.from <= time && time < self.end
    }

    pub(crate) fn length(self) -> u64 {
        self.end - self.from
    }
}

/// What one contender writes down: a push for each acquisition, and nothing else in its loop.
///
/// Memory is bounded. A log that is full keeps the spans of every second slice of the time, then
/// those of every fourth. All contenders drop the same slices in the end, so that who followed
/// whom is right in those that stay. What is dropped is not checked either, which the sample says.
#[derive(Debug)]
pub(crate) struct SpanLog {
    window: Window,
    max_spans: usize,
    /// Acquisitions in the window, kept or not.
    pub(crate) acquisitions: u64,
    recorded: RecordedSpans,
}

/// A slice has 8.4 ms: many hand-overs, and few of them at its edges.
pub(super) const SLICE_BITS: u32 = 23;

/// What is reserved at first; a loop over memory fills it in a tenth of a second.
const RESERVED: usize = 1 << 15;

pub(super) fn is_kept(acquired: u64, stride: u64) -> bool {
    (acquired >> SLICE_BITS) & (stride - 1) == 0
}

impl SpanLog {
    /// A log that keeps at most so many spans.
    pub(crate) fn new(window: Window, max_spans: usize) -> Self {
        Self {
            window,
            max_spans,
            acquisitions: 0,
            recorded: RecordedSpans {
                spans: Vec::with_capacity(max_spans.min(RESERVED)),
                stride: 1,
                ..RecordedSpans::default()
            },
        }
    }

    pub(crate) fn push(&mut self, span: HoldSpan) {
        self.acquisitions += u64::from(self.window.has(span.acquired));
        if self.recorded.spans.len() >= self.max_spans {
            self.thin_out();
        }
        if is_kept(span.acquired, self.recorded.stride) {
            self.recorded.spans.push(span);
        }
    }

    #[cold]
    fn thin_out(&mut self) {
        let RecordedSpans { spans, stride, .. } = &mut self.recorded;
        while spans.len() > self.max_spans / 2 && *stride < 1 << 32 {
            *stride *= 2;
            spans.retain(|span| is_kept(span.acquired, *stride));
        }
    }

    pub(crate) fn push_unserved(&mut self, key: u32, requested: u64) {
        if self.recorded.unserved.len() < self.max_spans {
            self.recorded
                .unserved
                .push(UnservedRequest { key, requested });
        }
    }

    #[cold]
    pub(crate) fn push_failure(&mut self, failure: &Failure) {
        let RecordedSpans {
            errors, failures, ..
        } = &mut self.recorded;
        *errors.entry(failure.kind().to_owned()).or_default() += 1;
        if failures.len() < MESSAGES {
            failures.push(failure.to_string());
        }
    }
}

/// What the contenders of one measurement have written down, of one process or of all.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct RecordedSpans {
    pub(crate) spans: Vec<HoldSpan>,
    /// Every how many slices of the time are in `spans`; see [`SpanLog`].
    pub(crate) stride: u64,
    pub(crate) unserved: Vec<UnservedRequest>,
    /// Acquisitions in the window, of each contender by its number.
    pub(crate) per_contender: BTreeMap<u32, u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) failures: Vec<String>,
    /// Processor time in the window.
    pub(crate) processor_ns: u64,
    /// Whether requests were left out because too many waited.
    pub(crate) is_overrun: bool,
    pub(crate) layer: Option<Requests>,
    pub(crate) footprint: Option<Footprint>,
}

impl RecordedSpans {
    /// What a contender wrote down.
    pub(crate) fn of(contender: u32, log: SpanLog) -> Self {
        Self {
            per_contender: BTreeMap::from([(contender, log.acquisitions)]),
            ..log.recorded
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
        self.footprint = self.footprint.take().or(other.footprint);
        if let Some(requests) = other.layer {
            let all = self.layer.get_or_insert_default();
            all.with.merge(&requests.with);
            all.without.merge(&requests.without);
        }
    }
}

/// Failures whose messages are kept, of one contender and of a measurement.
const MESSAGES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_keeps_the_same_slices_as_others() {
        let slice = 1 << SLICE_BITS;
        let window = Window {
            start: 0,
            from: 0,
            end: slice * 100,
        };
        let mut log = SpanLog::new(window, 64);
        for number in 0..1_000 {
            let acquired = number * slice / 10;
            log.push(HoldSpan {
                acquired,
                ..HoldSpan::default()
            });
        }
        assert_eq!(log.acquisitions, 1_000);
        assert!(log.recorded.spans.len() <= 64 && log.recorded.spans.len() > 16);
        let RecordedSpans { spans, stride, .. } = log.recorded;
        let all = (0..1_000).map(|number| number * slice / 10);
        let kept = all.filter(|time| is_kept(*time, stride));
        assert!(spans.iter().map(|span| span.acquired).eq(kept));
    }
}
