//! Words in messages: what was meant, what there is, and what is better not repeated.

/// The candidate that `text` was most likely meant to be, if any is near.
pub(super) fn nearest<'a>(
    text: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let text = text.to_lowercase().replace('_', "-");
    candidates
        .into_iter()
        .map(|candidate| {
            let spelt = candidate.to_lowercase().replace('_', "-");
            (strsim::damerau_levenshtein(&text, &spelt), candidate)
        })
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

/// `, did you mean "ttl"?`, or which there are.
pub(super) fn instead_of<'a>(
    text: &str,
    candidates: impl IntoIterator<Item = &'a str, IntoIter: Clone>,
) -> String {
    let candidates = candidates.into_iter();
    match nearest(text, candidates.clone()) {
        Some(meant) => format!(", did you mean {}?", quoted(meant)),
        None => format!(" (known: {})", list(candidates.map(shown))),
    }
}

/// The words with commas, or `none`.
pub(super) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(", "),
    }
}

/// The text in quotes, unless it may be a URL in the wrong place.
pub(super) fn quoted(text: &str) -> String {
    match is_harmless(text) {
        true => format!("{text:?}"),
        false => "***".to_owned(),
    }
}

/// The text itself, unless it may be a URL in the wrong place.
pub(super) fn shown(text: &str) -> &str {
    match is_harmless(text) {
        true => text,
        false => "***",
    }
}

/// Whether a text in the place of something else can be no URL with a password.
pub(super) fn is_harmless(text: &str) -> bool {
    !text.contains(['@', ':', '/']) && text.len() <= 64
}

/// Whether a text can be the path of a file, and no URL.
pub(super) fn is_path(text: &str) -> bool {
    !text.contains('@') && !text.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_not_repeated() {
        assert_eq!(quoted("main"), "\"main\"");
        assert_eq!(quoted("redis://:secret@cache"), "***");
        // Names of tables are candidates, and may be wrong themselves.
        let known = ["redis://:secret@cache", "main"];
        assert_eq!(instead_of("color", known), " (known: ***, main)");
        let near = instead_of("redis://:secret@cach", known);
        assert_eq!(near, ", did you mean ***?");
    }

    #[test]
    fn says_what_was_meant_or_what_there_is() {
        let known = ["ttl", "max-hold"];
        assert_eq!(instead_of("tll", known), ", did you mean \"ttl\"?");
        assert_eq!(
            instead_of("MAX_HOLD", known),
            ", did you mean \"max-hold\"?"
        );
        assert_eq!(instead_of("color", known), " (known: ttl, max-hold)");
        assert_eq!(instead_of("color", []), " (known: none)");
    }
}
