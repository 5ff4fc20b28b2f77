//! Suggestions in messages about a word that is not known.

/// The candidate that `text` was most likely meant to be, if any is near.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |word: &str| word.to_lowercase().replace('_', "-");
    let text = plain(text);
    let distance = |candidate: &&str| strsim::damerau_levenshtein(&text, &plain(candidate));
    candidates
        .into_iter()
        .map(|candidate| (distance(&candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

/// `, did you mean "ttl"?`, or nothing.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest
        .map(|nearest| format!(", did you mean {nearest:?}?"))
        .unwrap_or_default()
}

/// The words in alphabetical order without repetition, or `none`.
pub fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words: Vec<_> = words.into_iter().collect();
    if words.is_empty() {
        return "none".to_owned();
    }
    words.sort_unstable();
    words.dedup();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = [
            "Main-db",
            "busy-timeout",
            "max-handovers",
            "mode",
            "namespace",
            "ttl",
        ];
        let cases = [
            ("tll", Some("ttl")),
            ("TTL", Some("ttl")),
            ("busy_timeout", Some("busy-timeout")),
            ("busytimeout", Some("busy-timeout")),
            ("MAIN_DB", Some("Main-db")),
            ("max-handover", Some("max-handovers")),
            ("namepsace", Some("namespace")),
            ("table", None),
            ("", None),
        ];
        for (text, meant) in cases {
            assert_eq!(nearest(text, known), meant, "{text}");
        }
    }

    #[test]
    fn lists_words_in_order() {
        assert_eq!(list([]), "none");
        assert_eq!(list(["b", "a", "b"]), "a, b");
    }
}
