use http::HeaderMap;
use http::header::HeaderName;
use http::request::Parts;
use lock_core::{Error, ErrorKind, Result};

use super::origin::Origin;
use super::{KeyError, KeyExtractor, Keys};

/// Takes the name of the lock from a header.
///
/// The value is taken exactly, without the spaces and tabs around it, which are no part of it
/// (RFC 9110). A header that is missing or empty is [`KeyError::Missing`]; one that is there more
/// than once, is not UTF-8, has control characters or more than
/// [`MAX_NAME_LEN`](super::MAX_NAME_LEN) bytes is [`KeyError::Invalid`]. A list `a, b` is one name.
///
/// Clients choose what they send: with an unchecked header, one of them can take the lock of
/// another.
///
/// # Examples
///
/// ```
/// use lock_tower::keys::Header;
/// use lock_tower::{KeyError, KeyExtractor, Keys};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let account = Header::new("x-account")?;
///
/// let (parts, ()) = http::Request::post("/").header("X-Account", "42").body(())?.into_parts();
/// assert_eq!(account.keys(&parts)?, Keys::one("42"));
///
/// let (parts, ()) = http::Request::post("/").body(())?.into_parts();
/// let missing = account.keys(&parts).unwrap_err();
/// assert!(matches!(&missing, KeyError::Missing(_)));
/// assert_eq!(missing.to_string(), "the header x-account is missing");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
}

impl Header {
    /// Reads the header `name`, in whatever case.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if that is no name of a header.
    pub fn new(name: &str) -> Result<Self> {
        let parsed = HeaderName::try_from(name);
        let parsed = parsed.map_err(|e| {
            Error::new(ErrorKind::InvalidConfig, "not a name of a header").with_source(e)
        })?;
        Ok(Self::from(parsed))
    }
}

impl From<HeaderName> for Header {
    fn from(name: HeaderName) -> Self {
        Self { name }
    }
}

impl KeyExtractor for Header {
    fn keys(&self, parts: &Parts) -> Result<Keys, KeyError> {
        value(&parts.headers, &self.name).map(Keys::one)
    }
}

/// The value of a header that is there once.
pub(super) fn value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<&'h str, KeyError> {
    let origin = Origin::header(name);
    let value = origin.only(headers.get_all(name))?;
    origin.text(trimmed(value.as_bytes()))
}

impl<'a> Origin<'a> {
    pub(super) fn header(name: &'a HeaderName) -> Self {
        Self {
            kind: "header",
            name: name.as_str(),
        }
    }
}

/// Without spaces and tabs around, which HTTP/1 strips and HTTP/2 carries.
pub(super) fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}
