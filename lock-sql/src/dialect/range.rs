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
