use super::{Span, Waiting, Window};

/// Whether requests came faster than they were served, so that their number grows for as long as
/// it is measured: at the end more wait than at half time, and more than chance makes of it.
pub(super) fn grows(spans: &[Span], unserved: &[Waiting], window: Window) -> bool {
    let waiting_at = |time: u64| {
        let served = spans
            .iter()
            .filter(|span| span.asked <= time && span.acquired > time);
        let unserved = unserved.iter().filter(|waiting| waiting.asked <= time);
        served.count() + unserved.count()
    };
    let half = window.from + window.length() / 2;
    let (middle, end) = (waiting_at(half), waiting_at(window.end));
    let arrivals = spans.len() + unserved.len();
    end >= LEAST && end * SHARE >= arrivals && end * 2 >= middle * 3
}

/// So many wait by chance.
const LEAST: usize = 10;
/// One in so many of all requests waits at the end.
const SHARE: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        start: 0,
        from: 0,
        end: 1_000,
    };

    /// A request every unit of time; what is served after the end is not served.
    fn is_growing(served_at: impl Fn(u64) -> u64) -> bool {
        let mut spans = Vec::new();
        let mut unserved = Vec::new();
        for asked in 0..1_000 {
            let acquired = served_at(asked);
            if acquired < WINDOW.end {
                spans.push(Span {
                    asked,
                    acquired,
                    ..Span::default()
                });
            } else {
                unserved.push(Waiting { key: 0, asked });
            }
        }
        grows(&spans, &unserved, WINDOW)
    }

    #[test]
    fn a_queue_that_grows_is_told_from_one_that_is_long() {
        assert!(!is_growing(|asked| asked), "nobody waits");
        assert!(
            !is_growing(|asked| asked + 200),
            "each waits as long as the other"
        );
        assert!(
            !is_growing(|asked| asked + 300 * u64::from(asked < 500)),
            "one that was long"
        );
        assert!(
            is_growing(|asked| asked * 2),
            "half of what comes is served"
        );
        assert!(
            is_growing(|asked| asked * 5 / 4),
            "most of what comes is served"
        );
        assert!(is_growing(|_| u64::MAX), "nothing is served");
    }
}
