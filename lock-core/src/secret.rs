//! Text that is never printed.

use std::fmt;
use std::hint::black_box;

/// A password, or what may have one in it.
///
/// `Debug` shows `***`. The text is overwritten before its memory is freed, as far as that is possible
/// without `unsafe`; copies that a driver makes of it are its own.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text: for the driver, and for nothing that prints.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        drop(overwritten(std::mem::take(&mut self.0)));
    }
}

/// The memory of a text, with zeros in all of it.
fn overwritten(text: String) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    bytes.clear();
    bytes.resize(bytes.capacity(), 0);
    // Otherwise the compiler may leave out a write that nobody reads.
    black_box(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_not_printed() {
        let secret = Secret::from("s3ntinel".to_owned());
        assert_eq!(secret.expose(), "s3ntinel");
        assert_eq!(format!("{secret:?} {secret:#?}"), "*** ***");
    }

    #[test]
    fn is_overwritten_in_its_own_memory() {
        let mut text = String::with_capacity(100);
        text.push_str("s3ntinel");
        let memory = (text.as_ptr(), text.capacity());
        let bytes = overwritten(text);
        assert_eq!((bytes.as_ptr(), bytes.len()), memory);
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
