use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use super::{KeyError, KeyExtractor, Keys};

/// Names the locks by what an earlier layer has put into the extensions of the request, such as the
/// user that it has authenticated.
///
/// A request without it is [`KeyError::Misconfigured`]: the layer is missing, or comes later. The
/// names are those of the service, and as long as it likes.
///
/// # Examples
///
/// ```
/// use lock_tower::keys::Extension;
/// use lock_tower::{KeyError, KeyExtractor, Keys};
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let user = Extension::new(|user: &User| Keys::one(user.id.to_string()));
///
/// let (parts, ()) = http::Request::post("/").extension(User { id: 7 }).body(())?.into_parts();
/// assert_eq!(user.keys(&parts)?, Keys::one("7"));
///
/// let (parts, ()) = http::Request::post("/").body(())?.into_parts();
/// assert!(matches!(user.keys(&parts), Err(KeyError::Misconfigured(_))));
/// # Ok(()) }
/// ```
pub struct Extension<T> {
    keys: Arc<dyn Fn(&T) -> Keys + Send + Sync>,
}

impl<T: Send + Sync + 'static> Extension<T> {
    /// Names the locks that `keys` makes of a `T`.
    #[must_use]
    pub fn new(keys: impl Fn(&T) -> Keys + Send + Sync + 'static) -> Self {
        let keys = Arc::new(keys);
        Self { keys }
    }
}

impl<T: Send + Sync + 'static> KeyExtractor for Extension<T> {
    fn keys(&self, parts: &Parts) -> Result<Keys, KeyError> {
        let found = parts.extensions.get::<T>().ok_or_else(|| {
            let what = type_name::<T>();
            KeyError::Misconfigured(format!(
                "no earlier layer has put a {what} into the extensions of the request"
            ))
        })?;
        Ok((self.keys)(found))
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        let keys = Arc::clone(&self.keys);
        Self { keys }
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", type_name::<T>())
    }
}
