use super::record::SLICE_BITS;
use super::{HoldSpan, UnservedRequest, Window};
use crate::report::{Latencies, Turn};

/// From the call of release to the next acquisition of the key, by another contender that
/// waited before. The spans are sorted by key and by the time of the acquisition.
pub(super) fn hand_offs(spans: &[HoldSpan], stride: u64, window: Window) -> Latencies {
    let mut latencies = Latencies::default();
    for pair in spans.windows(2) {
        let (before, next) = (&pair[0], &pair[1]);
        let has_waited = next.requested < before.releasing;
        if before.key == next.key
            && before.contender != next.contender
            && has_waited
            && window.has(next.acquired)
            && follow(before, next, stride)
        {
            latencies.record_ns(next.acquired.saturating_sub(before.releasing));
        }
    }
    latencies
}

/// Whether nothing between two spans was dropped. Hand-offs over the end of a slice are missing with a stride,
/// so all that are longer than a slice; a note of the table says so.
fn follow(before: &HoldSpan, next: &HoldSpan, stride: u64) -> bool {
    // With a stride, the slice after one that is kept is dropped.
    stride == 1 || before.acquired >> SLICE_BITS == next.acquired >> SLICE_BITS
}

/// How often a request that was served in the window was so before an earlier one of the same key;
/// requests that were never served count as served last.
pub(super) fn overtakes(spans: &[HoldSpan], unserved: &[UnservedRequest], window: Window) -> u64 {
    let of_keys = spans.chunk_by(|a, b| a.key == b.key);
    of_keys
        .map(|spans| {
            let key = spans[0].key;
            let spans = spans.iter().filter(|span| window.has(span.acquired));
            let mut requested: Vec<_> = spans.map(|span| span.requested).collect();
            let waiting = unserved.iter().filter(|waiting| waiting.key == key);
            let first = requested.len();
            requested.extend(waiting.map(|waiting| waiting.requested));
            // Which of these would have come first is unknown.
            requested[first..].sort_unstable();
            inversions(&requested)
        })
        .sum()
}

/// Pairs in which the larger one stands first, by a Fenwick tree over the ranks of the values.
fn inversions(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let mut tree = vec![0_u64; values.len() + 1];
    let mut count = 0;
    for (before, value) in (0..).zip(values) {
        let rank = sorted.partition_point(|other| other <= value);
        let (mut not_larger, mut at) = (0, rank);
        while at > 0 {
            not_larger += tree[at];
            at &= at - 1;
        }
        count += before - not_larger;
        at = rank;
        while at < tree.len() {
            tree[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    count
}

/// The first turns at the first key in the window.
pub(super) fn timeline(spans: &[HoldSpan], window: Window) -> Vec<Turn> {
    let first_key = spans.first().map(|span| span.key);
    spans
        .iter()
        .filter(|span| Some(span.key) == first_key && window.has(span.acquired))
        .take(TURNS)
        .map(|span| Turn {
            contender: span.contender,
            from_ns: span.acquired - window.from,
            to_ns: span.releasing.saturating_sub(window.from),
        })
        .collect()
}

const TURNS: usize = 200;

/// Whether requests came faster than they were served, so that their number grows for as long as
/// it is measured: at the end more wait than at half time, and more than chance makes of it.
pub(super) fn grows(spans: &[HoldSpan], unserved: &[UnservedRequest], window: Window) -> bool {
    let waiting_at = |time: u64| {
        let served = spans
            .iter()
            .filter(|span| span.requested <= time && span.acquired > time);
        let unserved = unserved.iter().filter(|waiting| waiting.requested <= time);
        served.count() + unserved.count()
    };
    let half = window.from + window.length() / 2;
    let (middle, end) = (waiting_at(half), waiting_at(window.end));
    let arrivals = spans.len() + unserved.len();
    end >= MIN_WAITING && end * WAITING_SHARE >= arrivals && end * 2 >= middle * 3
}

/// So many wait by chance.
const MIN_WAITING: usize = 10;
/// One in so many of all requests waits at the end.
const WAITING_SHARE: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        start: 0,
        from: 10,
        end: 1_000,
    };

    fn span(contender: u32, requested: u64, acquired: u64, releasing: u64) -> HoldSpan {
        HoldSpan {
            contender,
            requested,
            acquired,
            releasing,
            ..HoldSpan::default()
        }
    }

    #[test]
    fn a_hand_off_is_to_another_waiting_contender() {
        let spans = [
            span(0, 0, 20, 30),
            span(1, 25, 37, 40),       // 7 after the release
            span(0, 41, 42, 50),       // requested when the lock was free
            span(0, 45, 60, 70),       // the same contender
            span(1, 45, 990, 995),     // 920
            span(2, 45, 1_001, 1_002), // after the end
        ];
        let latencies = hand_offs(&spans, 1, WINDOW);
        assert_eq!(latencies.len(), 2);
        assert_eq!(latencies.quantile_ns(0.0), Some(7));
        assert_eq!(latencies.max_ns(), Some(920));
    }

    #[test]
    fn slices_that_were_dropped_make_no_hand_off() {
        let slice = 1 << SLICE_BITS;
        let window = Window {
            end: 10 * slice,
            ..WINDOW
        };
        let spans = [
            span(0, 0, 10, 2 * slice),
            span(1, 5, 2 * slice + 7, 2 * slice + 9),
            span(0, 2 * slice + 8, 2 * slice + 12, 2 * slice + 15),
        ];
        assert_eq!(hand_offs(&spans, 1, window).len(), 2);
        assert_eq!(hand_offs(&spans, 2, window).len(), 1);
    }

    #[test]
    fn overtakes_are_counted_by_the_order_of_requests() {
        let cases: &[(&[u64], &[u64], u64)] = &[
            (&[], &[], 0),
            (&[1, 2, 3], &[], 0),
            (&[2, 2, 2], &[], 0),
            (&[3, 2, 1], &[], 3),
            (&[2, 1, 4, 3], &[], 2),
            (&[2, 3, 4, 5, 1], &[], 4),
            (&[2, 3], &[1], 2),
            (&[2, 3], &[9, 4], 0),
        ];
        for (served, unserved, expected) in cases {
            let spans = (10..)
                .zip(*served)
                .map(|(at, &requested)| span(0, requested, at, at));
            let waiting = unserved
                .iter()
                .map(|&requested| UnservedRequest { key: 0, requested });
            let (spans, waiting): (Vec<_>, Vec<_>) = (spans.collect(), waiting.collect());
            assert_eq!(overtakes(&spans, &waiting, WINDOW), *expected, "{served:?}");
        }
    }

    #[test]
    fn the_timeline_begins_with_the_window() {
        let spans = [span(0, 0, 5, 11), span(1, 0, 15, 16), span(2, 0, 17, 18)];
        let turn = |contender, from_ns, to_ns| Turn {
            contender,
            from_ns,
            to_ns,
        };
        assert_eq!(timeline(&spans, WINDOW), [turn(1, 5, 6), turn(2, 7, 8)]);
    }

    #[test]
    fn a_queue_that_grows_is_told_from_one_that_is_long() {
        // A request every unit of time; what is served after the end is not served.
        type ServedAt = fn(u64) -> u64;
        let cases: [(ServedAt, bool, &str); 6] = [
            (|requested| requested, false, "none waits"),
            (|requested| requested + 200, false, "all wait as long"),
            (
                |requested| requested + 300 * u64::from(requested < 500),
                false,
                "it was long",
            ),
            (
                |requested| requested * 2,
                true,
                "half of what comes is served",
            ),
            (
                |requested| requested * 5 / 4,
                true,
                "most of what comes is served",
            ),
            (|_| u64::MAX, true, "nothing is served"),
        ];
        for (served_at, is_growing, what) in cases {
            let (mut served, mut waiting) = (Vec::new(), Vec::new());
            for requested in 0..1_000 {
                let acquired = served_at(requested);
                if acquired < WINDOW.end {
                    served.push(span(0, requested, acquired, 0));
                } else {
                    waiting.push(UnservedRequest { key: 0, requested });
                }
            }
            assert_eq!(grows(&served, &waiting, WINDOW), is_growing, "{what}");
        }
    }
}
