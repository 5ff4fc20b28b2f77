use polylock_history::{Exclusion, Hold, TokenOrder};

use super::{HoldSpan, Window};

/// What must not be: two holders at a time, tokens that do not grow with the holders. One sentence
/// each for the first of a kind and key, with the number of all.
///
/// The spans are sorted by key and by the time of the acquisition. Those that a full log has
/// dropped are not there to be checked; [`Sample::checked_of`](crate::report::Sample) tells.
pub(super) fn violations(spans: &[HoldSpan], window: Window) -> Vec<String> {
    let mut found = Vec::new();
    for spans in spans.chunk_by(|a, b| a.key == b.key) {
        let (mut exclusion, mut order) = (Exclusion::new(), TokenOrder::new());
        let (mut overlaps, mut disorders) = (Vec::new(), Vec::new());
        for (at, span) in (0..).zip(spans) {
            let hold = Hold::new(at, span.acquired, span.releasing).with_token(span.token);
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

    /// The rules are those of [`polylock_history`], which has their tests.
    #[test]
    fn names_holders_that_overlap_and_tokens_that_do_not_grow() {
        // Key, token, acquired, releasing.
        type Row = (u32, Option<u64>, u64, u64);
        let together = "contenders 0 and 1 held it together for 2.000 ms, 3.000 ms after the start";
        let token = "contender 1 got token 7 after contender 0 had 8, 3.000 ms after the start";
        let cases: [(&[Row], Vec<String>); 6] = [
            // One after the other, at a time on other keys, and for no time.
            (
                &[(0, Some(1), 1, 3), (0, Some(2), 3, 4), (1, Some(2), 2, 4)],
                vec![],
            ),
            (&[(0, None, 3, 3), (0, None, 3, 5)], vec![]),
            (
                &[(0, None, 3, 5), (0, None, 3, 6)],
                vec![format!("key 0: {together}")],
            ),
            (
                &[(4, None, 1, 5), (4, None, 3, 6), (4, None, 4, 7)],
                vec![format!("key 4: {together}, and 1 more of this kind")],
            ),
            // A smaller one, and one that is larger than that only.
            (
                &[(0, Some(8), 1, 2), (0, Some(7), 3, 4), (0, Some(8), 5, 6)],
                vec![format!("key 0: {token}, and 1 more of this kind")],
            ),
            (
                &[(0, Some(8), 1, 5), (0, Some(7), 3, 6)],
                vec![format!("key 0: {together}"), format!("key 0: {token}")],
            ),
        ];
        let window = Window {
            start: 0,
            from: 0,
            end: 1_000_000_000,
        };
        for (rows, expected) in cases {
            let spans = rows.iter().zip(0..).map(|(row, contender)| HoldSpan {
                key: row.0,
                contender,
                token: row.1,
                acquired: row.2 * 1_000_000,
                releasing: row.3 * 1_000_000,
                ..HoldSpan::default()
            });
            let found = violations(&spans.collect::<Vec<_>>(), window);
            assert_eq!(found, expected, "{rows:?}");
        }
    }
}
