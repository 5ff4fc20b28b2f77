use http::request::Parts;

use super::{KeyError, KeyExtractor, Keys};

/// Lets requests pass without a lock that do not name one.
///
/// What is [missing](KeyError::Missing), an empty header included, is [`Keys::Skip`]; other errors
/// stay. Clients choose whether they name a lock: use it where the lock is to their own good, not
/// where they could do harm without it.
///
/// # Examples
///
/// ```
/// use lock_tower::keys::{Header, Optional};
/// use lock_tower::{KeyExtractor, Keys};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let draft = Optional::new(Header::new("x-draft")?);
///
/// let (parts, ()) = http::Request::post("/").header("x-draft", "d1").body(())?.into_parts();
/// assert_eq!(draft.keys(&parts)?, Keys::one("d1"));
///
/// let (parts, ()) = http::Request::post("/").body(())?.into_parts();
/// assert_eq!(draft.keys(&parts)?, Keys::Skip);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Optional<E> {
    extractor: E,
}

impl<E: KeyExtractor> Optional<E> {
    /// Asks `extractor`.
    #[must_use]
    pub fn new(extractor: E) -> Self {
        Self { extractor }
    }
}

impl<E: KeyExtractor> KeyExtractor for Optional<E> {
    fn keys(&self, parts: &Parts) -> Result<Keys, KeyError> {
        match self.extractor.keys(parts) {
            Err(KeyError::Missing(_)) => Ok(Keys::Skip),
            keys => keys,
        }
    }
}
