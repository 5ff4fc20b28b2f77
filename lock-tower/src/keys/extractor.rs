use bytes::Bytes;
use http::Response;
use http::request::Parts;

/// Reads from the head of a request which locks it needs.
///
/// [`keys`](crate::keys) has ready-made ones, and closures
/// `Fn(&Parts) -> Result<Keys, KeyError>` are extractors too. The returned names are in the namespace of
/// the [`Locker`](crate::Locker); they may be long, and their characters are checked afterwards. An
/// extractor is called once for each request that takes a lock, and must not block. `Arc<E>` does not
/// implement this trait; pass `move |parts: &Parts| shared.keys(parts)`.
///
/// The [examples of `keys`](crate::keys#examples) are such closures.
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the names of the locks.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the locks cannot be read from the request, which is then rejected.
    fn keys(&self, parts: &Parts) -> Result<Keys, KeyError>;
}

impl<F> KeyExtractor for F
where
    F: Fn(&Parts) -> Result<Keys, KeyError> + Send + Sync + 'static,
{
    fn keys(&self, parts: &Parts) -> Result<Keys, KeyError> {
        self(parts)
    }
}

/// The locks that a request needs.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use polylock_tower::{KeyError, KeyExtractor, Keys};
///
/// /// `/transfer/42/7` locks both accounts, and other requests pass.
/// fn accounts(parts: &Parts) -> Result<Keys, KeyError> {
///     let mut path = parts.uri.path().split('/').skip(1);
///     Ok(match (path.next(), path.next(), path.next()) {
///         (Some("transfer"), Some(from), Some(to)) => Keys::many([from, to]),
///         _ => Keys::Skip,
///     })
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (parts, ()) = http::Request::post("/transfer/42/7").body(())?.into_parts();
/// assert_eq!(accounts.keys(&parts)?, Keys::many(["42", "7"]));
/// # let (parts, ()) = http::Request::post("/").body(())?.into_parts();
/// # assert_eq!(accounts(&parts)?, Keys::Skip);
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Keys {
    /// Several locks, 1 to 64; acquired in one order, so that two requests cannot wait for each other.
    Many(Vec<String>),
    /// One lock.
    One(String),
    /// No lock: the request passes.
    Skip,
}

impl Keys {
    /// Needs one lock.
    #[must_use]
    pub fn one(name: impl Into<String>) -> Self {
        Self::One(name.into())
    }

    /// Needs several locks.
    #[must_use]
    pub fn many<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::Many(names.into_iter().map(Into::into).collect())
    }

    /// Needs one lock, named by several parts such as a tenant and an id.
    ///
    /// Different parts give different names: they are joined by `/`, and inside a part `/` is escaped as
    /// `%2F` and `%` as `%25`.
    ///
    /// # Examples
    ///
    /// ```
    /// use polylock_tower::Keys;
    ///
    /// assert_eq!(Keys::joined(["acme", "42"]), Keys::one("acme/42"));
    /// assert_eq!(Keys::joined(["a/b", "c"]), Keys::one("a%2Fb/c"));
    /// assert_ne!(Keys::joined(["a/b", "c"]), Keys::joined(["a", "b/c"]));
    /// ```
    #[must_use]
    pub fn joined<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> Self {
        Self::One(join(parts))
    }
}

/// Why a request has no key.
///
/// The [examples of `keys`](crate::keys#examples) return and match it.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum KeyError {
    /// The value in the request cannot be a key; rejected with 400. The text is shown to the client.
    #[error("{0}")]
    Invalid(String),
    /// The service is misconfigured, whatever the request is; rejected with 500, and logged at
    /// most every 10 s.
    #[error("{0}")]
    Misconfigured(String),
    /// The request has no key; rejected with 400. The text is shown to the client.
    #[error("{0}")]
    Missing(String),
    /// The request is rejected with this response.
    #[error("answered with {}", .0.status())]
    Response(Box<Response<Bytes>>),
}

/// Joins several parts into one name, so that different parts never give the same name: a `/` in the result
/// separates, and a `/` inside a part is escaped.
pub(crate) fn join<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> String {
    let escaped = |part: P| part.as_ref().replace('%', "%25").replace('/', "%2F");
    let parts: Vec<_> = parts.into_iter().map(escaped).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::join;

    #[test]
    fn different_parts_make_different_names() {
        let texts = [
            "", "a", "b", "/", "%", "a/", "/b", "%2F", "%252F", "a/b", "a%2Fb", "2F",
        ];
        let mut seen = HashMap::new();
        for a in texts {
            for b in texts {
                for parts in [vec![a, b], vec![a, b, ""], vec![a, b, "b"], vec!["a", a, b]] {
                    let name = join(&parts);
                    let before = seen.entry(name.clone()).or_insert_with(|| parts.clone());
                    assert_eq!(*before, parts, "both are {name:?}");
                }
            }
        }
        assert!(seen.len() > 4 * 100);
    }
}
