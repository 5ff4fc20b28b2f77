use http::request::Parts;
use lock_core::{Error, ErrorKind, Result};

use super::{KeyError, KeyExtractor, Keys};

/// Names the same lock for every request: they run one at a time, all of them.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
///
/// use http::{Request, Response, StatusCode};
/// use lock_core::memory::Memory;
/// use lock_tower::keys::Fixed;
/// use lock_tower::{KeyLockLayer, Locker};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let reports = Locker::builder(Arc::new(Memory::new()), "reports").try_only().build()?;
/// let rebuild = service_fn(async |_: Request<String>| {
///     Ok::<_, Infallible>(Response::new(String::new()))
/// });
/// let service = KeyLockLayer::new(reports.clone(), Fixed::new("rebuild")?).layer(rebuild);
///
/// let held = reports.lock("rebuild").await?;
/// let refused = service.clone().oneshot(Request::post("/").body(String::new())?).await?;
/// assert_eq!(refused.status(), StatusCode::CONFLICT);
///
/// held.release().await?;
/// let served = service.oneshot(Request::post("/").body(String::new())?).await?;
/// assert_eq!(served.status(), StatusCode::OK);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Fixed {
    name: String,
}

impl Fixed {
    /// Names this lock.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the name is empty or has control characters.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        if name.is_empty() || name.contains(char::is_control) {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                "a lock has a name, and that has no control characters",
            ));
        }
        Ok(Self { name })
    }
}

impl KeyExtractor for Fixed {
    fn keys(&self, _: &Parts) -> Result<Keys, KeyError> {
        Ok(Keys::one(self.name.as_str()))
    }
}
