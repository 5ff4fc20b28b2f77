use http::header::HeaderName;
use http::request::Parts;

use super::header::value;
use super::origin::Origin;
use super::{KeyError, KeyExtractor, Keys};

/// Takes the name of the lock from the header `Idempotency-Key`.
///
/// The draft of the IETF has a string in double quotes there (RFC 8941, 3.3.3), and most clients
/// send the same without quotes; `"8e03"` and `8e03` are one key. It has 1 to
/// [`MAX_LEN`](Self::MAX_LEN) characters: of printable ASCII in quotes, and without them neither
/// spaces nor any of `"`, `\`, `,` and `;`. A header that is missing or empty is
/// [`KeyError::Missing`]; one that is there more than once or is anything else, parameters after the
/// string included, is [`KeyError::Invalid`].
///
/// Clients choose their keys, and two may choose the same one. Combine it with the client's
/// identity by [`Compound`](super::Compound).
///
/// # Examples
///
/// ```
/// use lock_tower::keys::IdempotencyKey;
/// use lock_tower::{KeyError, KeyExtractor, Keys};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// for sent in ["8e03978e", "\"8e03978e\""] {
///     let request = http::Request::post("/payments").header("Idempotency-Key", sent);
///     let (parts, ()) = request.body(())?.into_parts();
///     assert_eq!(IdempotencyKey::new().keys(&parts)?, Keys::one("8e03978e"));
/// }
///
/// // A proxy has joined two headers.
/// let request = http::Request::post("/payments").header("Idempotency-Key", "8e03, 8e04");
/// let (parts, ()) = request.body(())?.into_parts();
/// assert!(matches!(IdempotencyKey::new().keys(&parts), Err(KeyError::Invalid(_))));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IdempotencyKey {}

impl IdempotencyKey {
    /// Longest key, in characters.
    pub const MAX_LEN: usize = 255;

    /// Reads `Idempotency-Key`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl KeyExtractor for IdempotencyKey {
    fn keys(&self, parts: &Parts) -> Result<Keys, KeyError> {
        let origin = Origin::header(&IDEMPOTENCY_KEY);
        let text = value(&parts.headers, &IDEMPOTENCY_KEY)?;
        let key = match text.strip_prefix('"') {
            Some(rest) => quoted(rest),
            None => bare(text),
        };
        match key {
            Some(key) if key.is_empty() => Err(origin.missing("is empty")),
            Some(key) if key.len() > Self::MAX_LEN => {
                let max = Self::MAX_LEN;
                Err(origin.invalid(&format!("has more than {max} characters")))
            }
            Some(key) => Ok(Keys::One(key)),
            None => Err(origin.invalid("is neither a string in double quotes nor a plain token")),
        }
    }
}

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What stands before the closing quote, which must be the end.
fn quoted(text: &str) -> Option<String> {
    let mut key = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return chars.as_str().is_empty().then_some(key),
            '\\' => key.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            c @ ' '..='~' => key.push(c),
            _ => return None,
        }
    }
}

fn bare(text: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | ',' | ';');
    text.chars().all(plain).then(|| text.to_owned())
}
