use super::order::{grows, hand_offs, overtakes, timeline};
use super::record::is_kept;
use super::safety::violations;
use super::{HoldSpan, RecordedSpans, UnservedRequest, Window};
use crate::report::{Latencies, Sample};

/// What a measurement of so many contenders has shown.
pub(crate) fn sample(
    mut recorded: RecordedSpans,
    contenders: u32,
    window: Window,
    is_open: bool,
) -> Sample {
    let stride = recorded.stride.max(1);
    let spans = &mut recorded.spans;
    spans.sort_unstable_by_key(|span| (span.key, span.acquired, span.token));
    let per_contender: Vec<u64> = (0..contenders)
        .map(|number| recorded.per_contender.get(&number).copied().unwrap_or(0))
        .collect();
    let counted = spans.iter().filter(|span| window.has(span.acquired));
    let (mut acquire, release) = latencies(counted);
    let waits = unserved_waits(&recorded.unserved, window);
    let mut unserved = waits.clone().count() as u64;
    if is_open {
        // Waits that the end cuts short are the slow ones: without them an overload looks quick. Spans are
        // thinned out, so these waits must be as well.
        let kept = waits.filter(|waiting| is_kept(waiting.requested, stride));
        kept.for_each(|waiting| acquire.record_ns(window.end - waiting.requested));
        // Spans that were served after the end, but waited at it.
        for span in spans.iter().filter(|span| waited_at_the_end(span, window)) {
            acquire.record_ns(window.end - span.requested);
            unserved += stride;
        }
    }
    // Spans that began before the window too, since they held the lock in it.
    let held: u64 = spans.iter().map(|span| held_within(span, window)).sum();
    let with_token = spans.iter().filter(|span| span.token.is_some()).count() as u64;
    let is_saturated = is_open && (recorded.is_overrun || grows(spans, &recorded.unserved, window));
    let hand_off = if is_open {
        // Each of its requests is a contender of its own.
        Latencies::default()
    } else {
        hand_offs(spans, stride, window)
    };
    let acquisitions = per_contender.iter().sum();
    if acquisitions == 0 && recorded.errors.is_empty() && !recorded.unserved.is_empty() {
        let waited = recorded.unserved.len() as u64;
        recorded.errors.insert("unserved".to_owned(), waited);
        recorded
            .failures
            .push("no request was served in time".to_owned());
    }
    Sample {
        duration_ns: window.length(),
        acquisitions,
        errors: recorded.errors,
        failures: recorded.failures,
        violations: violations(spans, window),
        acquire,
        release,
        hand_off,
        per_contender,
        overtakes: overtakes(spans, &recorded.unserved, window) * stride,
        timeline: timeline(spans, window),
        client_processors: recorded.processor_ns as f64 / window.length() as f64,
        is_saturated,
        held_ns: held * stride,
        checked_of: stride,
        with_token: Some(with_token),
        unserved,
        layer: recorded.layer,
        footprint: recorded.footprint,
        ..Sample::default()
    }
}

fn latencies<'a>(spans: impl Iterator<Item = &'a HoldSpan>) -> (Latencies, Latencies) {
    let (mut acquire, mut release) = (Latencies::default(), Latencies::default());
    for span in spans {
        acquire.record_ns(span.acquired.saturating_sub(span.requested));
        release.record_ns(span.released.saturating_sub(span.releasing));
    }
    (acquire, release)
}

/// Those that still waited at the end, since before the window or since later.
fn unserved_waits(
    unserved: &[UnservedRequest],
    window: Window,
) -> impl Iterator<Item = &UnservedRequest> + Clone {
    unserved
        .iter()
        .filter(move |waiting| waiting.requested < window.end)
}

fn waited_at_the_end(span: &HoldSpan, window: Window) -> bool {
    span.requested < window.end && window.end <= span.acquired
}

fn held_within(span: &HoldSpan, window: Window) -> u64 {
    let from = span.acquired.max(window.from);
    span.releasing.min(window.end).saturating_sub(from)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::measure::SpanLog;
    use crate::measure::record::SLICE_BITS;
    use crate::subject::Failure;

    const WINDOW: Window = Window {
        start: 0,
        from: 100,
        end: 1_100,
    };

    /// A span of a lock that is let go at once.
    fn span(requested: u64, acquired: u64) -> HoldSpan {
        HoldSpan {
            requested,
            acquired,
            releasing: acquired,
            released: acquired,
            ..HoldSpan::default()
        }
    }

    #[test]
    fn counts_what_is_in_the_window() {
        let mut recorded = RecordedSpans::default();
        for contender in 0..2 {
            let mut log = SpanLog::new(WINDOW, 100);
            for number in 0..10 {
                let acquired = 50 + 200 * number + u64::from(contender) * 100;
                log.push(HoldSpan {
                    contender,
                    token: Some(acquired),
                    releasing: acquired + 80,
                    released: acquired + 90,
                    ..span(acquired - 40, acquired)
                });
            }
            log.push_failure(&Failure::new("unavailable", "no answer"));
            recorded.add(RecordedSpans::of(contender, log));
        }
        recorded.processor_ns = 500;
        let sample = sample(recorded, 3, WINDOW, false);
        assert_eq!(sample.duration_ns, 1_000);
        // 250, 450 .. 1050 and 150, 350 .. 950
        assert_eq!(sample.per_contender, [5, 5, 0]);
        assert_eq!((sample.acquisitions, sample.acquire.len()), (10, 10));
        let longest = [&sample.acquire, &sample.release, &sample.hand_off];
        assert_eq!(
            longest.map(Latencies::max_ns),
            [Some(40), Some(10), Some(20)]
        );
        // The first one, until 130, counts from the window on, and that from 1050 on to its end.
        assert_eq!(sample.held_ns, 30 + 9 * 80 + 50);
        assert_eq!((sample.checked_of, sample.unserved), (1, 0));
        assert_eq!((sample.with_token, sample.overtakes), (Some(20), 0));
        let errors = BTreeMap::from([("unavailable".to_owned(), 2)]);
        assert_eq!(sample.errors, errors);
        assert_eq!(sample.failures, ["no answer"]);
        assert_eq!(sample.violations, [""; 0]);
        assert!((sample.client_processors - 0.5).abs() < 1e-9);
        assert!(!sample.is_saturated);
    }

    #[test]
    fn requests_of_which_none_was_served_are_an_error() {
        let mut log = SpanLog::new(WINDOW, 100);
        log.push_unserved(0, 1);
        let sample = sample(RecordedSpans::of(0, log), 1, WINDOW, false);
        assert_eq!(sample.errors, BTreeMap::from([("unserved".to_owned(), 1)]));
        assert_eq!(sample.failures.len(), 1);
    }

    #[test]
    fn requests_that_the_end_cuts_short_are_slow_ones_of_the_open_loop() {
        // One in the window; of the others, those from before its end that are not served in it.
        type Case = (&'static [(u64, u64)], &'static [u64]);
        let cases: [Case; 2] = [
            (&[(200, 210)], &[50, 600, 1_100]),
            (
                &[(200, 210), (300, 1_100), (50, 2_000), (1_100, 1_200)],
                &[],
            ),
        ];
        for (served, unserved) in cases {
            let [open, closed] = [true, false].map(|is_open| {
                let mut log = SpanLog::new(WINDOW, 100);
                served
                    .iter()
                    .for_each(|&(requested, acquired)| log.push(span(requested, acquired)));
                unserved
                    .iter()
                    .for_each(|&requested| log.push_unserved(0, requested));
                sample(RecordedSpans::of(0, log), 1, WINDOW, is_open)
            });
            assert_eq!((open.acquisitions, open.unserved), (1, 2), "{served:?}");
            let counts = (open.acquire.len(), closed.acquire.len());
            assert_eq!(counts, (3, 1), "{served:?}");
            // From 50, and from 600 or 300 on.
            assert!(open.acquire.max_ns() >= Some(1_050), "{open:?}");
            assert!(open.acquire.quantile_ns(0.5) >= Some(500), "{open:?}");
        }
    }

    #[test]
    fn what_was_thinned_out_is_told() {
        let slice = 1 << SLICE_BITS;
        let window = Window {
            start: 0,
            from: 0,
            end: 64 * slice,
        };
        let mut log = SpanLog::new(window, 16);
        for acquired in (0..64).map(|number| number * slice) {
            log.push(HoldSpan {
                token: Some(acquired),
                ..span(acquired, acquired)
            });
            log.push_unserved(0, acquired);
        }
        let recorded = RecordedSpans::of(0, log);
        let stride = recorded.stride;
        assert!(stride > 1);
        let sample = sample(recorded, 1, window, true);
        assert_eq!((sample.checked_of, sample.acquisitions), (stride, 64));
        // Of both kinds those of the same slices; the log has 16 that were not served.
        assert_eq!(sample.unserved, 16);
        assert_eq!(sample.acquire.len(), (64 + 16) / stride);
    }
}
