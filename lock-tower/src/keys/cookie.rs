use std::borrow::Cow;

use http::header::{self, HeaderMap};
use http::request::Parts;
use lock_core::{Error, ErrorKind, Result};
use percent_encoding::percent_decode;

use super::header::trimmed;
use super::origin::Origin;
use super::{KeyError, KeyExtractor, Keys};

/// Takes the name of the lock from a cookie.
///
/// One pair of double quotes around the value is taken off. A cookie that is missing or empty is
/// [`KeyError::Missing`]; one that is there more than once (also with the same value, in several
/// `Cookie` headers, or with its name percent-encoded), whose value is percent-encoded, which some
/// services decode and others do not, is not UTF-8, has control characters or more than
/// [`MAX_NAME_LEN`](super::MAX_NAME_LEN) bytes is [`KeyError::Invalid`].
///
/// A cookie of a session is a secret, and the backend stores names of locks and shows them to its
/// administrators: prefer what the session belongs to, by an [`Extension`](super::Extension).
///
/// # Examples
///
/// ```
/// use lock_tower::keys::Cookie;
/// use lock_tower::{KeyExtractor, Keys};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cart = Cookie::new("cart")?;
///
/// let request = http::Request::post("/").header("Cookie", "theme=dark; cart=\"c-17\"");
/// let (parts, ()) = request.body(())?.into_parts();
/// assert_eq!(cart.keys(&parts)?, Keys::one("c-17"));
///
/// let request = http::Request::post("/").header("Cookie", "cart=c-17; cart=c-18");
/// let (parts, ()) = request.body(())?.into_parts();
/// let repeated = cart.keys(&parts).unwrap_err();
/// assert_eq!(repeated.to_string(), "the cookie cart is there more than once");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Cookie {
    name: String,
}

impl Cookie {
    /// Reads the cookie `name`, in this case of letters.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if that is no name of a cookie.
    pub fn new(name: &str) -> Result<Self> {
        if name.is_empty() || !name.bytes().all(in_name) {
            let what = "not a name of a cookie";
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        let name = name.to_owned();
        Ok(Self { name })
    }
}

/// Whether the byte may stand in a name: a `token` of RFC 9110.
fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl KeyExtractor for Cookie {
    fn keys(&self, parts: &Parts) -> Result<Keys, KeyError> {
        let origin = Origin {
            kind: "cookie",
            name: &self.name,
        };
        let value = unquoted(origin.only(values(&parts.headers, &self.name))?);
        if is_encoded(value) {
            return Err(origin.invalid("is percent-encoded"));
        }
        origin.text(value).map(Keys::one)
    }
}

/// The values of all cookies of this name. HTTP/2 may cut the list of cookies into several headers.
fn values<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let lists = headers.get_all(header::COOKIE).into_iter();
    let pairs = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let middle = pair.iter().position(|byte| *byte == b'=')?;
        let (found, value) = (&pair[..middle], &pair[middle + 1..]);
        let found = trimmed(found);
        // Software that decodes names sees two cookies of one name.
        let is_it = found == name.as_bytes() || *decoded(found) == *name.as_bytes();
        is_it.then(|| trimmed(value))
    })
}

/// Whether software that decodes cookies would read another value.
fn is_encoded(value: &[u8]) -> bool {
    *decoded(value) != *value
}

fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(text).into()
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        value => value,
    }
}
