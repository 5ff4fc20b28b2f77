use super::span::NO_TOKEN;
use super::{Span, Window};

/// What must not be: two holders at a time, tokens that do not grow with the holders. One sentence
/// each for the first of a kind and key, with the number of all.
///
/// The spans are sorted by key and by the time of the acquisition. Those that a full log has
/// dropped are not there to be checked; [`Sample::checked_of`](crate::report::Sample) tells.
pub(super) fn violations(spans: &[Span], window: Window) -> Vec<String> {
    let of_keys = spans.chunk_by(|a, b| a.key == b.key);
    let mut found = Vec::new();
    for spans in of_keys {
        found.extend(overlap(spans, window));
        found.extend(disorder(spans, window));
        if found.len() >= MOST {
            break;
        }
    }
    found
}

/// Sentences that one measurement gives.
const MOST: usize = 10;

/// A holder knows that it has the lock from `acquired` on and has it until it calls release, so two
/// such times of one key never overlap. That they touch is no overlap: the clock has steps.
fn overlap(spans: &[Span], window: Window) -> Option<String> {
    let mut first = None;
    let mut count = 0_u64;
    let mut holder: Option<&Span> = None;
    for span in spans {
        match holder {
            Some(before) if span.acquired < before.let_go && before.acquired < span.let_go => {
                count += 1;
                first.get_or_insert((*before, *span));
                if span.let_go > before.let_go {
                    holder = Some(span);
                }
            }
            _ => holder = Some(span),
        }
    }
    let (before, span) = first?;
    let together = before.let_go.min(span.let_go) - span.acquired;
    Some(format!(
        "key {}: contenders {} and {} held it together for {}{}{}",
        span.key,
        before.contender,
        span.contender,
        milliseconds(together),
        at(&span, window),
        others(count),
    ))
}

fn disorder(spans: &[Span], window: Window) -> Option<String> {
    let with_token = spans.iter().filter(|span| span.token != NO_TOKEN);
    let mut first = None;
    let mut count = 0_u64;
    let mut last: Option<&Span> = None;
    for span in with_token {
        match last {
            Some(before) if span.token <= before.token => {
                count += 1;
                first.get_or_insert((*before, *span));
            }
            _ => last = Some(span),
        }
    }
    let (before, span) = first?;
    Some(format!(
        "key {}: contender {} got token {} after contender {} had {}{}{}",
        span.key,
        span.contender,
        span.token,
        before.contender,
        before.token,
        at(&span, window),
        others(count),
    ))
}

fn at(span: &Span, window: Window) -> String {
    let since = span.acquired.saturating_sub(window.start);
    format!(", {} after the start", milliseconds(since))
}

fn others(count: u64) -> String {
    match count - 1 {
        0 => String::new(),
        more => format!(", and {more} more of this kind"),
    }
}

fn milliseconds(nanos: u64) -> String {
    format!("{:.3} ms", nanos as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        start: 0,
        from: 0,
        end: 1_000,
    };

    /// Key, token, acquired, let go.
    type Row = (u32, u64, u64, u64);

    #[test]
    fn finds_holders_that_overlap_and_tokens_that_do_not_grow() {
        let cases: &[(&str, &[Row], &[&str])] = &[
            ("nothing", &[], &[]),
            ("one after the other", &[(0, 1, 0, 5), (0, 2, 5, 9)], &[]),
            ("nothing held", &[(0, 1, 5, 5), (0, 2, 5, 9)], &[]),
            (
                "nothing held, the other way round",
                &[(0, 1, 5, 9), (0, 2, 5, 5)],
                &[],
            ),
            ("one step of the clock", &[(0, 1, 5, 6), (0, 2, 6, 7)], &[]),
            (
                "the same step of the clock",
                &[(0, 1, 5, 6), (0, 2, 5, 6)],
                &["key 0: contenders 0 and 1 held it together for 0.000 ms"],
            ),
            (
                "no tokens at the same time",
                &[(0, NO_TOKEN, 4, 6), (0, NO_TOKEN, 5, 7)],
                &["held it together"],
            ),
            ("other keys", &[(0, 1, 0, 9), (1, 1, 2, 3)], &[]),
            (
                "no tokens",
                &[(0, NO_TOKEN, 0, 1), (0, NO_TOKEN, 1, 2)],
                &[],
            ),
            (
                "an end within",
                &[(0, 1, 0, 5), (0, 2, 4, 9)],
                &["key 0: contenders 0 and 1 held it together for 0.000 ms"],
            ),
            (
                "in a hold that is long over the next one too",
                &[(0, 1, 0, 9), (0, 2, 1, 2), (0, 3, 8, 9)],
                &["held it together for 0.000 ms, 0.000 ms after the start, and 1 more"],
            ),
            (
                "the same token",
                &[(0, 7, 0, 1), (0, 7, 2, 3)],
                &["key 0: contender 1 got token 7 after contender 0 had 7"],
            ),
            (
                "a smaller one, and one that is larger than that only",
                &[(3, 7, 0, 1), (3, 5, 2, 3), (3, 6, 4, 5), (3, 8, 6, 7)],
                &[
                    "key 3: contender 1 got token 5 after contender 0 had 7, 0.000 ms after the start, and 1 more",
                ],
            ),
            (
                "both",
                &[(0, 7, 0, 4), (0, 7, 2, 3)],
                &["held it together", "got token 7"],
            ),
        ];
        for (name, rows, expected) in cases {
            let spans: Vec<_> = rows
                .iter()
                .zip(0..)
                .map(|(&(key, token, acquired, let_go), contender)| Span {
                    key,
                    contender,
                    token,
                    acquired,
                    let_go,
                    ..Span::default()
                })
                .collect();
            let found = violations(&spans, WINDOW);
            assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
            for (found, expected) in found.iter().zip(*expected) {
                assert!(found.contains(expected), "{name}: {found}");
            }
        }
    }
}
