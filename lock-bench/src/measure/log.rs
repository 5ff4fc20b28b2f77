use std::collections::BTreeMap;

use super::{Span, Waiting, Window};
use crate::subject::Failure;

/// What one contender writes down: a push for each acquisition, and nothing else in its loop.
///
/// Memory is bounded. A log that is full keeps the spans of every second slice of the time, then
/// those of every fourth. All contenders drop the same slices in the end, so that who followed
/// whom is right in those that stay. What is dropped is not checked either, which the sample says.
#[derive(Debug)]
pub(crate) struct Log {
    window: Window,
    most: usize,
    pub(crate) spans: Vec<Span>,
    /// Every how many slices are kept: a power of two.
    pub(crate) stride: u64,
    /// Acquisitions in the window, kept or not.
    pub(crate) acquisitions: u64,
    pub(crate) unserved: Vec<Waiting>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) failures: Vec<String>,
}

/// A slice has 8.4 ms: many hand-overs, and few of them at its edges.
pub(super) const SLICE_BITS: u32 = 23;

/// What is reserved at first; a loop over memory fills it in a tenth of a second.
const RESERVED: usize = 1 << 15;

/// Failures whose messages are kept, of one contender.
const MESSAGES: usize = 3;

/// Whether a span of this time is kept.
pub(super) fn is_kept(acquired: u64, stride: u64) -> bool {
    (acquired >> SLICE_BITS) & (stride - 1) == 0
}

impl Log {
    /// A log that keeps at most so many spans.
    pub(crate) fn new(window: Window, most: usize) -> Self {
        Self {
            window,
            most,
            spans: Vec::with_capacity(most.min(RESERVED)),
            stride: 1,
            acquisitions: 0,
            unserved: Vec::new(),
            errors: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, span: Span) {
        self.acquisitions += u64::from(self.window.has(span.acquired));
        if self.spans.len() >= self.most {
            self.thin_out();
        }
        if is_kept(span.acquired, self.stride) {
            self.spans.push(span);
        }
    }

    #[cold]
    fn thin_out(&mut self) {
        while self.spans.len() > self.most / 2 && self.stride < 1 << 32 {
            self.stride *= 2;
            let stride = self.stride;
            self.spans.retain(|span| is_kept(span.acquired, stride));
        }
    }

    pub(crate) fn push_unserved(&mut self, key: u32, asked: u64) {
        if self.unserved.len() < self.most {
            self.unserved.push(Waiting { key, asked });
        }
    }

    #[cold]
    pub(crate) fn push_failure(&mut self, failure: &Failure) {
        *self.errors.entry(failure.kind().to_owned()).or_default() += 1;
        if self.failures.len() < MESSAGES {
            self.failures.push(failure.to_string());
        }
    }
}

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
        let mut log = Log::new(window, 64);
        for number in 0..1_000 {
            let acquired = number * slice / 10;
            log.push(Span {
                acquired,
                ..Span::default()
            });
        }
        assert_eq!(log.acquisitions, 1_000);
        assert!(log.spans.len() <= 64 && log.spans.len() > 16);
        let whole = (0..1_000_u64).map(|number| number * slice / 10);
        let kept: Vec<_> = whole.filter(|time| is_kept(*time, log.stride)).collect();
        let spans: Vec<_> = log.spans.iter().map(|span| span.acquired).collect();
        assert_eq!(spans, kept);
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let window = Window {
            start: 0,
            from: 0,
            end: 1,
        };
        let mut log = Log::new(window, 1);
        for number in 0..10 {
            log.push_failure(&Failure::new("unavailable", format!("no answer {number}")));
        }
        assert_eq!(log.errors, BTreeMap::from([("unavailable".to_owned(), 10)]));
        assert_eq!(log.failures.len(), MESSAGES);
    }
}
