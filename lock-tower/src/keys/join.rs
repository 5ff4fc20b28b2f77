/// Makes one name of several parts, such that different parts never make the same name: a `/` in
/// the result separates, and every other one is escaped.
pub(crate) fn join<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> String {
    let escaped = |part: P| part.as_ref().replace('%', "%25").replace('/', "%2F");
    let parts: Vec<_> = parts.into_iter().map(escaped).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::join;

    #[test]
    fn different_parts_make_different_names() {
        let texts = [
            "", "a", "b", "/", "%", "a/", "/b", "%2F", "%252F", "a/b", "a%2Fb", "2F",
        ];
        let mut seen = HashMap::new();
        for a in texts {
            for b in texts {
                for parts in [vec![a, b], vec![a, b, ""], vec![a, b, "b"], vec!["a", a, b]] {
                    let name = join(&parts);
                    let before = seen.entry(name.clone()).or_insert_with(|| parts.clone());
                    assert_eq!(*before, parts, "both are {name:?}");
                }
            }
        }
        assert!(seen.len() > 4 * 100);
    }
}
