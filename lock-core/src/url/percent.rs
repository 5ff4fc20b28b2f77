//! Percent-decoding.

use percent_encoding::percent_decode_str;

use crate::error::{Error, Result};

/// Percent-decodes a part; a `%` that escapes nothing is an error, since it was meant to be `%25`.
pub(super) fn decode(part: &str) -> Result<String> {
    let escapes = part.split('%').skip(1).map(str::as_bytes);
    for escape in escapes {
        if escape.len() < 2 || !escape[..2].iter().all(u8::is_ascii_hexdigit) {
            return Err(Error::config(
                "a % in a URL is written %25, also in a password",
            ));
        }
    }
    // Memory that need not grow: it would leave copies of a password behind.
    let mut bytes = Vec::with_capacity(part.len());
    bytes.extend(percent_decode_str(part));
    // The cause is left out: it would say where in a password the trouble is.
    String::from_utf8(bytes).map_err(|_| Error::config("an escaped byte in the URL is not UTF-8"))
}
