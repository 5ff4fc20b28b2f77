use std::borrow::Cow;

use http::request::Parts;
use percent_encoding::percent_decode;

use super::origin::Origin;
use super::{KeyError, KeyExtractor, Keys};

/// Takes the name of the lock from a parameter of the query.
///
/// It is decoded as forms are, `+` and `%20` to a space, so that the lock is named by what a handler
/// reads. A parameter that is missing or empty is [`KeyError::Missing`]; one that is there more than
/// once, does not decode to UTF-8, has control characters or more than
/// [`MAX_NAME_LEN`](super::MAX_NAME_LEN) bytes is [`KeyError::Invalid`].
///
/// # Examples
///
/// ```
/// use lock_tower::keys::QueryParam;
/// use lock_tower::{KeyError, KeyExtractor, Keys};
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
    /// Reads the parameter `name`, as it is when decoded.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { name }
    }
}

impl KeyExtractor for QueryParam {
    fn keys(&self, parts: &Parts) -> Result<Keys, KeyError> {
        let origin = Origin {
            kind: "query parameter",
            name: &self.name,
        };
        let query = parts.uri.query().unwrap_or_default();
        let value = origin.only(values(query, &self.name))?;
        origin.text(&decoded(value)).map(Keys::one)
    }
}

/// The values of all parameters of this name, still encoded.
fn values<'q>(query: &'q str, name: &str) -> impl Iterator<Item = &'q str> {
    query.split('&').filter_map(move |pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        // An empty pair is none, not a parameter without a name.
        (!pair.is_empty() && *decoded(found) == *name.as_bytes()).then_some(value)
    })
}

/// As `form_urlencoded` decodes, but bytes that are not UTF-8 stay what they are: replaced, two
/// values would become one.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    match text.contains('+') {
        true => Cow::Owned(percent_decode(text.replace('+', " ").as_bytes()).collect()),
        false => percent_decode(text.as_bytes()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{decoded, values};

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
                let ours = values(query, name).map(|value| decoded(value).into_owned());
                let ours: Vec<_> = ours
                    .map(|value| String::from_utf8(value).unwrap())
                    .collect();
                assert_eq!(ours, theirs, "{name:?} in {query:?}");
            }
        }
    }
}
