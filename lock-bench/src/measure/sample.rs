use super::backlog::grows;
use super::order::{hand_offs, overtakes, timeline};
use super::safety::violations;
use super::{Recorded, Span, Window};
use crate::report::{Latencies, Sample};

/// What a measurement of so many contenders has shown.
pub(crate) fn sample(
    mut recorded: Recorded,
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
    let (acquire, release) = latencies(counted.clone());
    let held: u64 = counted.map(|span| held_within(span, window)).sum();
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
        layer: recorded.layer,
        ..Sample::default()
    }
}

fn latencies<'a>(spans: impl Iterator<Item = &'a Span>) -> (Latencies, Latencies) {
    let (mut acquire, mut release) = (Latencies::default(), Latencies::default());
    for span in spans {
        acquire.record_ns(span.acquired.saturating_sub(span.asked));
        release.record_ns(span.released.saturating_sub(span.let_go));
    }
    (acquire, release)
}

fn held_within(span: &Span, window: Window) -> u64 {
    span.let_go.min(window.end).saturating_sub(span.acquired)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::measure::Log;
    use crate::subject::Failure;

    const WINDOW: Window = Window {
        start: 0,
        from: 100,
        end: 1_100,
    };

    #[test]
    fn counts_what_is_in_the_window() {
        let mut recorded = Recorded::default();
        for contender in 0..2 {
            let mut log = Log::new(WINDOW, 100);
            for number in 0..10 {
                let acquired = 50 + 200 * number + u64::from(contender) * 100;
                log.push(Span {
                    contender,
                    token: acquired,
                    asked: acquired - 40,
                    acquired,
                    let_go: acquired + 80,
                    released: acquired + 90,
                    ..Span::default()
                });
            }
            log.push_failure(&Failure::new("unavailable", "no answer"));
            recorded.add(Recorded::of(contender, log));
        }
        recorded.processor_ns = 500;
        let sample = sample(recorded, 3, WINDOW, false);
        assert_eq!(sample.duration_ns, 1_000);
        // 250, 450 .. 1050 and 150, 350 .. 950
        assert_eq!(sample.per_contender, [5, 5, 0]);
        assert_eq!(sample.acquisitions, 10);
        assert_eq!(sample.acquire.len(), 10);
        assert_eq!(sample.acquire.max_ns(), Some(40));
        assert_eq!(sample.release.max_ns(), Some(10));
        assert_eq!(sample.hand_off.max_ns(), Some(20));
        // The last one, from 1050 on, counts until the end.
        assert_eq!(sample.held_ns, 9 * 80 + 50);
        assert_eq!(
            sample.errors,
            BTreeMap::from([("unavailable".to_owned(), 2)])
        );
        assert_eq!(sample.failures, ["no answer"]);
        assert_eq!(sample.violations, [""; 0]);
        assert_eq!(sample.overtakes, 0);
        assert!((sample.client_processors - 0.5).abs() < 1e-9);
        assert!(!sample.is_saturated);
    }

    #[test]
    fn requests_of_which_none_was_served_are_an_error() {
        let mut log = Log::new(WINDOW, 100);
        log.push_unserved(0, 1);
        let sample = sample(Recorded::of(0, log), 1, WINDOW, false);
        assert_eq!(sample.errors, BTreeMap::from([("unserved".to_owned(), 1)]));
        assert_eq!(sample.failures.len(), 1);
    }
}
