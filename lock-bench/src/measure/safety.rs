use polylock_history::{Exclusion, Hold, TokenOrder};

use super::{Span, Window};

/// What must not be: two holders at a time, tokens that do not grow with the holders. One sentence
/// each for the first of a kind and key, with the number of all.
///
/// The spans are sorted by key and by the time of the acquisition. Those that a full log has
/// dropped are not there to be checked; [`Sample::checked_of`](crate::report::Sample) tells.
pub(super) fn violations(spans: &[Span], window: Window) -> Vec<String> {
    let mut found = Vec::new();
    for spans in spans.chunk_by(|a, b| a.key == b.key) {
        let (mut exclusion, mut order) = (Exclusion::new(), TokenOrder::new());
        let (mut overlaps, mut disorders) = (Vec::new(), Vec::new());
        for (at, span) in (0..).zip(spans) {
            let hold = Hold::new(at, span.acquired, span.let_go).with_token(span.token);
            overlaps.extend(exclusion.enter(hold).map(|other| (other, hold)));
            disorders.extend(order.grant(hold).map(|other| (other, hold)));
        }
        let contender = |hold: &Hold| {
            let at = usize::try_from(hold.holder).expect("BUG: it is the place of a span");
            spans[at].contender
        };
        let with_count = |what: String, (_, hold): &(Hold, Hold), count: usize| {
            let since = milliseconds(hold.from.saturating_sub(window.start));
            let more = match count - 1 {
                0 => String::new(),
                more => format!(", and {more} more of this kind"),
            };
            format!(
                "key {}: {what}, {since} after the start{more}",
                spans[0].key
            )
        };
        if let Some(first @ (other, hold)) = overlaps.first() {
            let together = milliseconds(other.until.min(hold.until) - hold.from);
            let (one, two) = (contender(other), contender(hold));
            let what = format!("contenders {one} and {two} held it together for {together}");
            found.push(with_count(what, first, overlaps.len()));
        }
        if let Some(first @ (other, hold)) = disorders.first() {
            let [before, token] = [other, hold].map(|hold| hold.token.unwrap_or_default());
            let (one, two) = (contender(hold), contender(other));
            let what =
                format!("contender {one} got token {token} after contender {two} had {before}");
            found.push(with_count(what, first, disorders.len()));
        }
        if found.len() >= MAX_FOUND {
            break;
        }
    }
    found
}

/// Sentences that one measurement gives.
const MAX_FOUND: usize = 10;

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

    /// The rules are those of [`polylock_history`], which has their tests.
    #[test]
    fn names_holders_that_overlap_and_tokens_that_do_not_grow() {
        let cases: &[(&[Row], &[&str])] = &[
            (&[], &[]),
            // One after the other, in neighboring steps of the clock; at a time on other keys.
            (&[(0, 1, 5, 6), (0, 2, 6, 7)], &[]),
            (&[(0, 1, 0, 9), (1, 1, 2, 3)], &[]),
            // For no time, which no clock shows.
            (&[(0, 1, 5, 5), (0, 2, 5, 9)], &[]),
            (
                &[(0, 1, 0, 9), (0, 2, 1, 2), (0, 3, 8, 9)],
                &[
                    "key 0: contenders 0 and 1 held it together for 0.000 ms, 0.000 ms after the start, and 1 more",
                ],
            ),
            (
                &[(3, 7, 0, 1), (3, 5, 2, 3), (3, 6, 4, 5), (3, 8, 6, 7)],
                &[
                    "key 3: contender 1 got token 5 after contender 0 had 7, 0.000 ms after the start, and 1 more",
                ],
            ),
            (
                &[(0, 7, 0, 4), (0, 7, 2, 3)],
                &["held it together", "got token 7"],
            ),
        ];
        for (rows, expected) in cases {
            for has_tokens in [true, false] {
                let span = |(&(key, token, acquired, let_go), contender)| Span {
                    key,
                    contender,
                    token: has_tokens.then_some(token),
                    acquired,
                    let_go,
                    ..Span::default()
                };
                let spans: Vec<_> = rows.iter().zip(0..).map(span).collect();
                let found = violations(&spans, WINDOW);
                let expected = expected
                    .iter()
                    .filter(|e| has_tokens || !e.contains("token"));
                let expected: Vec<_> = expected.collect();
                assert_eq!(found.len(), expected.len(), "{rows:?}: {found:?}");
                let mut pairs = found.iter().zip(expected);
                assert!(
                    pairs.all(|(found, expected)| found.contains(expected)),
                    "{found:?}"
                );
            }
        }
    }
}
