/// The keys that begin with `prefix`, as bytes from and up to.
pub(crate) fn range(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // No byte of UTF-8 is 0xFF.
        Some(last) => *last += 1,
        None => end.push(0xFF),
    }
    let from = if prefix.is_empty() {
        vec![0]
    } else {
        prefix.as_bytes().to_vec()
    };
    (from, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_keys_with_the_prefix_and_no_other_ones() {
        let keys = ["a", "ab", "ab/1", "ab/2", "ac", "b", "\u{e9}", "\u{10ffff}"];
        let cases = [
            ("", &keys[..]),
            ("ab", &["ab", "ab/1", "ab/2"]),
            ("ab/", &["ab/1", "ab/2"]),
            ("\u{e9}", &["\u{e9}"]),
            ("\u{10ffff}", &["\u{10ffff}"]),
            ("z", &[]),
        ];
        for (prefix, expected) in cases {
            let (from, up_to) = range(prefix);
            let is_in = |key: &&str| *key.as_bytes() >= *from && *key.as_bytes() < *up_to;
            let found: Vec<_> = keys.into_iter().filter(is_in).collect();
            assert_eq!(found, expected, "keys that begin with {prefix:?}");
        }
    }
}
