use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::{Footprint, Requests};
use crate::subject::Failure;

/// A time that somebody had a lock, and how it came to that. Times are those of the clock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Span {
    /// Number of the key.
    pub(crate) key: u32,
    /// Number of the contender.
    pub(crate) contender: u32,
    /// The fencing token, or [`NO_TOKEN`].
    pub(crate) token: u64,
    /// When it was asked for; in the open loop, when it should have been.
    pub(crate) asked: u64,
    /// When the contender knew that it has the lock.
    pub(crate) acquired: u64,
    /// When it called release.
    pub(crate) let_go: u64,
    /// When release was over.
    pub(crate) released: u64,
}

/// No backend gives the largest number.
pub(crate) const NO_TOKEN: u64 = u64::MAX;

/// A request that was not served.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Waiting {
    pub(crate) key: u32,
    pub(crate) asked: u64,
}

/// The time that counts, between a warm-up and the end.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Window {
    /// When contenders begin.
    pub(crate) start: u64,
    /// From when on it counts.
    pub(crate) from: u64,
    /// When contenders end.
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

impl Span {
    /// Its length in the binary form that contenders send.
    pub(crate) const BYTES: usize = 48;

    pub(crate) fn to_bytes(self) -> impl Iterator<Item = u8> {
        let ids = u64::from(self.key) << 32 | u64::from(self.contender);
        let times = [self.asked, self.acquired, self.let_go, self.released];
        let words = [ids, self.token].into_iter().chain(times);
        words.flat_map(u64::to_le_bytes)
    }

    /// `None` if there are other than [`Span::BYTES`] bytes.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks();
        let words: &[[u8; 8]; 6] = words.try_into().ok().filter(|_| rest.is_empty())?;
        let [ids, token, asked, acquired, let_go, released] = words.map(u64::from_le_bytes);
        Some(Self {
            key: u32::try_from(ids >> 32).ok()?,
            contender: u32::try_from(ids & u64::from(u32::MAX)).ok()?,
            token,
            asked,
            acquired,
            let_go,
            released,
        })
    }
}

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

/// What the contenders of one measurement have written down, of one process or of all.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Recorded {
    /// They have a form of their own, which is shorter.
    #[serde(skip)]
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
    pub(crate) footprint: Option<Footprint>,
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

    #[test]
    fn spans_are_read_as_they_were_written() {
        let span = Span {
            key: 1,
            contender: u32::MAX,
            token: 3,
            asked: 4,
            acquired: 5,
            let_go: 6,
            released: u64::MAX - 1,
        };
        let bytes: Vec<_> = span.to_bytes().collect();
        assert_eq!(bytes.len(), Span::BYTES);
        assert_eq!(Span::of_bytes(&bytes), Some(span));
        assert_eq!(Span::of_bytes(&bytes[1..]), None);
    }
}
