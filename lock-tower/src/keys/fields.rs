//! Names of locks in one field of a request: a header, a cookie, or a parameter of the query.

use std::borrow::Cow;

use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use percent_encoding::percent_decode;
use polylock_core::{Error, Result};

use super::{KeyError, KeyExtractor, Keys, MAX_NAME_LEN};

/// Reads the name of the lock from a header.
///
/// The value is used exactly, without the spaces and tabs around it, which are not part of it (RFC 9110). A
/// missing or empty header is [`KeyError::Missing`]. A header that occurs more than once, is not UTF-8, has
/// control characters or exceeds [`MAX_NAME_LEN`] bytes is [`KeyError::Invalid`]. A list `a, b` is one
/// name.
///
/// Clients choose their headers: with an unchecked header, a client can take the lock of another.
///
/// # Examples
///
/// ```
/// use polylock_tower::keys::Header;
/// use polylock_tower::{KeyError, KeyExtractor, Keys};
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
    /// Reads the header `name`; case does not matter.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if `name` is not a valid header name.
    pub fn new(name: &str) -> Result<Self> {
        let parsed = HeaderName::try_from(name);
        let parsed = parsed.map_err(|e| Error::config("not a name of a header").with_source(e))?;
        Ok(Self::from(parsed))
    }

    /// Reads the value from a request, for closures that build a key from it.
    ///
    /// # Errors
    ///
    /// [`KeyError`] as above.
    pub fn read(&self, parts: &Parts) -> Result<String, KeyError> {
        header_value(&parts.headers, &self.name).map(str::to_owned)
    }
}

impl From<HeaderName> for Header {
    fn from(name: HeaderName) -> Self {
        Self { name }
    }
}

/// The value of a header that is there once.
pub(crate) fn header_value<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<&'h str, KeyError> {
    let origin = NameOrigin::new("header", name.as_str());
    let value = origin.only(headers.get_all(name))?;
    // HTTP/1 strips spaces and tabs, and HTTP/2 carries them. A header has no other white space.
    origin.text(value.as_bytes().trim_ascii())
}

/// Reads the name of the lock from a cookie.
///
/// One pair of double quotes around the value is removed. A missing or empty cookie is
/// [`KeyError::Missing`]. A cookie is [`KeyError::Invalid`] if it occurs more than once (also with the same
/// value, in several `Cookie` headers, or with its name percent-encoded), if its value is percent-encoded,
/// which services decode differently, or if its value is not UTF-8, has control characters or exceeds
/// [`MAX_NAME_LEN`] bytes.
///
/// Avoid session cookies: they are secrets, and the backend stores names of locks and shows them to its
/// administrators. Use a closure that returns the owner of the session.
///
/// # Examples
///
/// ```
/// use polylock_tower::keys::Cookie;
/// use polylock_tower::{KeyExtractor, Keys};
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
    /// Reads the cookie `name`; case matters.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if `name` is not a valid cookie name.
    pub fn new(name: &str) -> Result<Self> {
        if name.is_empty() || !name.bytes().all(in_name) {
            return Err(Error::config("not a name of a cookie"));
        }
        Ok(Self { name: name.into() })
    }

    /// Reads the value from a request, for closures that build a key from it.
    ///
    /// # Errors
    ///
    /// [`KeyError`] as above.
    pub fn read(&self, parts: &Parts) -> Result<String, KeyError> {
        let origin = NameOrigin::new("cookie", &self.name);
        let value = unquoted(origin.only(cookies(&parts.headers, &self.name))?);
        if *decoded(value) != *value {
            return Err(origin.invalid("is percent-encoded"));
        }
        origin.text(value).map(str::to_owned)
    }
}

/// Whether the byte may stand in a name: a `token` of RFC 9110.
fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The values of all cookies of this name. HTTP/2 may cut the list of cookies into several headers.
fn cookies<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let lists = headers.get_all(header::COOKIE).into_iter();
    let pairs = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let middle = pair.iter().position(|byte| *byte == b'=')?;
        let (found, value) = (&pair[..middle], &pair[middle + 1..]);
        let found = found.trim_ascii();
        // Software that decodes names sees two cookies of one name.
        let is_it = found == name.as_bytes() || *decoded(found) == *name.as_bytes();
        is_it.then(|| value.trim_ascii())
    })
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

/// Reads the name of the lock from a parameter of the query.
///
/// The value is decoded like a form, `+` and `%20` to a space, so that the lock has the name that a handler
/// reads. A missing or empty parameter is [`KeyError::Missing`]. A parameter that occurs more than once,
/// does not decode to UTF-8, has control characters or exceeds [`MAX_NAME_LEN`] bytes is
/// [`KeyError::Invalid`].
///
/// # Examples
///
/// ```
/// use polylock_tower::keys::QueryParam;
/// use polylock_tower::{KeyError, KeyExtractor, Keys};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let seat = QueryParam::new("seat");
///
/// let (parts, ()) = http::Request::post("/book?seat=row+1%2F7").body(())?.into_parts();
/// assert_eq!(seat.keys(&parts)?, Keys::one("row 1/7"));
///
/// let (parts, ()) = http::Request::post("/book?seat=%FF").body(())?.into_parts();
/// assert!(matches!(seat.keys(&parts), Err(KeyError::Invalid(_))));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct QueryParam {
    name: String,
}

impl QueryParam {
    /// Reads the parameter whose decoded name is `name`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Reads the value from a request, for closures that build a key from it.
    ///
    /// # Errors
    ///
    /// [`KeyError`] as above.
    pub fn read(&self, parts: &Parts) -> Result<String, KeyError> {
        let origin = NameOrigin::new("query parameter", &self.name);
        let query = parts.uri.query().unwrap_or_default();
        let value = origin.only(params(query, &self.name))?;
        origin.text(&form_decoded(value)).map(str::to_owned)
    }
}

/// The values of all parameters of this name, still encoded.
fn params<'q>(query: &'q str, name: &str) -> impl Iterator<Item = &'q str> {
    query.split('&').filter_map(move |pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        // An empty pair is not a parameter.
        (!pair.is_empty() && *form_decoded(found) == *name.as_bytes()).then_some(value)
    })
}

/// Decodes like `form_urlencoded`, but keeps bytes that are not UTF-8: replacing them could make two values
/// equal.
fn form_decoded(text: &str) -> Cow<'_, [u8]> {
    match text.contains('+') {
        true => Cow::Owned(percent_decode(text.replace('+', " ").as_bytes()).collect()),
        false => percent_decode(text.as_bytes()).into(),
    }
}

macro_rules! extractors {
    ($($field:ty),*) => { $(
        impl KeyExtractor for $field {
            fn keys(&self, parts: &Parts) -> Result<Keys, KeyError> {
                self.read(parts).map(Keys::One)
            }
        }
    )* };
}

extractors! { Cookie, Header, QueryParam }

/// Where in a request a name comes from, for messages to clients. Its text is from the service's
/// configuration, and never from the client.
#[derive(Clone, Copy)]
pub(crate) struct NameOrigin<'a> {
    kind: &'static str,
    name: &'a str,
}

impl<'a> NameOrigin<'a> {
    pub(crate) fn new(kind: &'static str, name: &'a str) -> Self {
        Self { kind, name }
    }

    /// Returns the only value, and rejects several: software that reads the last one would run under the
    /// lock of another.
    pub(crate) fn only<T>(self, values: impl IntoIterator<Item = T>) -> Result<T, KeyError> {
        let mut values = values.into_iter();
        let value = values.next().ok_or_else(|| self.missing("is missing"))?;
        match values.next() {
            Some(_) => Err(self.invalid("is there more than once")),
            None => Ok(value),
        }
    }

    /// Checks that the bytes can be a name.
    pub(crate) fn text(self, bytes: &[u8]) -> Result<&str, KeyError> {
        if bytes.is_empty() {
            return Err(self.missing("is empty"));
        }
        if bytes.len() > MAX_NAME_LEN {
            return Err(self.invalid(&format!("has more than {MAX_NAME_LEN} bytes")));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| self.invalid("is not UTF-8"))?;
        match text.contains(char::is_control) {
            true => Err(self.invalid("has control characters")),
            false => Ok(text),
        }
    }

    pub(crate) fn missing(self, what: &str) -> KeyError {
        KeyError::Missing(format!("the {} {} {what}", self.kind, self.name))
    }

    pub(crate) fn invalid(self, what: &str) -> KeyError {
        KeyError::Invalid(format!("the {} {} {what}", self.kind, self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::{form_decoded, params};

    /// What handlers read, and the layer must see.
    #[test]
    fn reads_what_form_urlencoded_reads() {
        let queries = " & = &&a=1& a a= a=1&a=2 a=% a=%4 a=%zz a=%41% %61=1 a=+%2B \
            a+b=1&a%20b=2 a==1= a=1;a=2 =a &=a& a=1?a=2 A=1 a=%C3%A9";
        for query in queries.split(' ') {
            for name in ["a", "a b", "", "A", "%61"] {
                let theirs = form_urlencoded::parse(query.as_bytes());
                let theirs = theirs.filter(|(found, _)| found == name);
                let theirs: Vec<_> = theirs.map(|(_, value)| value.into_owned()).collect();
                let ours = params(query, name).map(|value| form_decoded(value).into_owned());
                let ours: Vec<_> = ours
                    .map(|value| String::from_utf8(value).unwrap())
                    .collect();
                assert_eq!(ours, theirs, "{name:?} in {query:?}");
            }
        }
    }
}
