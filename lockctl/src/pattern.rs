//! Patterns of keys.

/// The beginning of keys, or a pattern in which `*` stands for any text.
#[derive(Debug)]
pub(crate) struct Pattern<'a> {
    parts: Vec<&'a str>,
}

impl<'a> Pattern<'a> {
    /// Takes a pattern apart; one without a star is a beginning.
    pub(crate) fn new(text: &'a str) -> Self {
        let mut parts: Vec<_> = text.split('*').collect();
        if parts.len() == 1 {
            parts.push("");
        }
        Self { parts }
    }

    /// What every matching key begins with.
    pub(crate) fn prefix(&self) -> &'a str {
        self.parts[0]
    }

    /// Whether the key matches from its beginning to its end.
    pub(crate) fn matches(&self, key: &str) -> bool {
        let (first, rest) = (self.parts[0], &self.parts[1..]);
        let Some(mut key) = key.strip_prefix(first) else {
            return false;
        };
        let (last, middle) = rest
            .split_last()
            .expect("BUG: there are two parts at least");
        for part in middle {
            // The leftmost match leaves the most to the parts that follow.
            let Some(at) = key.find(part) else {
                return false;
            };
            key = &key[at + part.len()..];
        }
        key.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        let table = [
            ("", "anything", true),
            ("or", "orders", true),
            ("or", "floor", false),
            ("*or", "floor", true),
            ("*or", "orders", false),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abcd", false),
            ("a*b*c", "axbxbxc", true),
            ("a*b*c", "axcxb", false),
            ("ab*b", "ab", false),
            ("*ü*", "grün", true),
        ];
        for (pattern, key, expected) in table {
            assert_eq!(
                Pattern::new(pattern).matches(key),
                expected,
                "{pattern} {key}"
            );
        }
        assert_eq!(Pattern::new("orders/*x").prefix(), "orders/");
    }
}
