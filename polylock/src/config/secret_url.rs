//! A URL whose secrets are not printed.

use std::fmt;

use polylock_core::{LockUrl, Result};
use secrecy::{ExposeSecret, SecretString};

/// The URL of a backend, with its secrets: `Debug` and `Display` show `***` in their place.
///
/// # Examples
///
/// ```
/// use polylock::config::Config;
///
/// # #[cfg(not(feature = "redis"))] fn main() {}
/// # #[cfg(feature = "redis")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::parse(r#"
///     [backend.main]
///     url = "redis://app:s3cret@cache"
/// "#)?;
/// let url = config.backends()[0].url.as_ref().ok_or("the URL is not available here")?;
/// assert_eq!(url.to_string(), "redis://app:***@cache");
/// assert_eq!(url.expose(), "redis://app:s3cret@cache");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SecretUrl {
    text: SecretString,
    url: LockUrl,
}

impl SecretUrl {
    pub(super) fn parse(text: String) -> Result<Self> {
        let url = LockUrl::parse(&text)?;
        let text = text.into();
        Ok(Self { text, url })
    }

    /// The URL in clear text: for [`Registry::connect`](polylock_core::Registry::connect), and for
    /// nothing that prints.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }

    /// The URL taken apart.
    #[must_use]
    pub fn url(&self) -> &LockUrl {
        &self.url
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.url, f)
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretUrl({})", self.url)
    }
}
